//! WDDM structures, enums and callbacks under Microsoft's names.
#![no_std]
