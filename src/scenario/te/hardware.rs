//! Hardware-scheduled nodes.
