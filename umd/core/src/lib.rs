//! Recording, rings, doorbells and fences of Fencepost's user-mode driver.
#![no_std]
