//! The rules that no case reaches, and why. `tests/scenarios.rs` holds the table: with the images, every other rule is
//! reached by some case, and none of these.

/// Name of a rule, and why no case reaches it with this driver.
pub const UNREACHED: &[(&str, &str)] = &[
    ("NT-MUTEX-NOT-OWNED", "the driver has no mutex"),
    ("NT-SEMAPHORE-LIMIT", "the driver has no semaphore"),
    ("NT-DEADLOCK", "it is looked at where every thread waits for another one alone"),
    ("NT-ACCESS", "it is looked at where code has touched what it may not alone"),
    ("NT-EXCEPTION", "it is looked at where code has raised an exception alone"),
    ("NT-POINTER", "it is looked at where a service was given a bad address alone"),
    ("NT-BUGCHECK", "it is looked at where the driver stops the machine alone"),
    ("NT-RETURN", "it is looked at where `check` runs a driver alone"),
    ("NT-IMPORT", "it is looked at where a service is called that the model lacks alone"),
    ("NT-HANDLED", "it is looked at where code has raised an exception in a __try alone"),
    ("NT-LOOKASIDE", "the driver has no lookaside list"),
    ("NT-USER-TOUCH", "it is looked at where driver code has touched an address of user mode alone"),
    ("NT-XSTATE", "the driver saves no extended processor state"),
    ("NT-WORK-ITEM", "the driver has no work item"),
    ("NT-MDL-PAGED", "the driver describes no memory of its own by an MDL"),
    ("NT-MDL-PROBE", "the driver locks no pages"),
    ("NT-CONTIGUOUS-FREE", "the driver takes contiguous memory by callbacks of Dxgkrnl alone"),
    ("DXG-CB-FREE", "it is looked at where something is freed that no callback has allocated alone"),
    ("DXG-LINK-NODES", "the adapter is no linked one"),
    ("DXG-LINK-ADDRESSES", "the adapter is no linked one"),
    ("DXG-INT-VSYNC", "it is looked at where a render-only adapter reports a vertical sync alone"),
    ("DXG-INT-ADAPTER-MASK", "the adapter reports no vertical sync"),
    ("DXG-PAGING-BUSY", "it is looked at where an operation is answered with STATUS_GRAPHICS_ALLOCATION_BUSY alone"),
];

/// Why no case reaches a rule; `None`: some does.
pub fn why_unreached(rule: &str) -> Option<&'static str> {
    UNREACHED.iter().find(|(name, _)| *name == rule).map(|(_, why)| *why)
}
