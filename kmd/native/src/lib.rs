//! Fencepost's driver linked natively over the NT model.
