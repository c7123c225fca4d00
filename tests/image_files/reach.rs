//! What the driver's functions take of the stack, and what they reach at which IRQL.

use crate::functions::Functions;
use crate::image::Image;

/// A kernel stack is 24 KiB, and the driver is the last of many on it. So no function takes 1 KiB, but for these.
const LARGE_FRAMES: &[(&str, &str)] = &[
    ("fencepost::driver_entry", "the table of functions, 1.5 KiB; the loader's stack is empty"),
    ("gpu_engine::engine::Core<", "an engine's own thread, which nothing else is on"),
    ("core::ops::function::FnOnce::call_once<kmd_core::start::start_engines::", "the same thread's first function"),
];

pub fn small_frames(image: &Image) -> Result<(), String> {
    if image.imports()?.iter().any(|(_, name)| name == "__chkstk") {
        return Err("__chkstk is imported: some frame has a page or more".into());
    }
    let functions = Functions::read(image)?;
    for function in functions.0.values().filter(|function| function.frame >= 1024) {
        if !LARGE_FRAMES.iter().any(|(name, _)| function.name.starts_with(name)) {
            return Err(format!("{} takes {} bytes of the stack", function.name, function.frame));
        }
    }
    Ok(())
}

/// The most stack that a function and what it calls directly may take, in bytes. StartDevice comes below PnP, Dxgkrnl
/// and filters, and above the registry's callbacks, so that a fifth of the stack is its share; an interrupt comes on
/// top of whatever runs.
const STACK: &[(&str, u32)] = &[
    ("kmd_ddi::adapter::start_device", 4608),
    ("kmd_ddi::adapter::interrupt_routine", 2048),
    ("kmd_ddi::adapter::dpc_routine", 2048),
    ("kmd_ddi::memory::build_paging_buffer", 3072),
    ("kmd_ddi::query::escape", 3072),
];

pub fn stack(image: &Image) -> Result<(), String> {
    let functions = Functions::read(image)?;
    for (root, most) in STACK {
        let depth = functions.named(root).into_iter().map(|start| functions.deepest(start)).max();
        let depth = depth.ok_or_else(|| format!("{root} is not in the image"))?;
        if depth > *most {
            return Err(format!("{root} and what it calls take {depth} bytes of the stack, beyond {most}"));
        }
    }
    Ok(())
}

/// What runs at the device's level.
const DEVICE_LEVEL: &[&str] = &[
    "kmd_ddi::adapter::interrupt_routine",
    "kmd_ddi::adapter::synchronized_report",
    "kmd_ddi::adapter::synchronized_section",
    "kmd_ddi::fences::update_monitored_values",
];

/// The one routine of the kernel that is called there: it writes an event, of memory that is resident, to the buffers
/// of the traces that are on; where none is, it is not called. Source: `EtwWriteTransfer` (wdm.h), IRQL "Any level".
const ANY_LEVEL: &str = "EtwWriteTransfer";

/// Nothing else of the kernel is called there, but through the table of callbacks that Dxgkrnl gives: no lock, no wait,
/// no allocation, nothing that is freed. And no `KeBugCheckEx`, which a panic ends in: whatever the rings, the OS or
/// the device say, the interrupt routine ends.
pub fn device_level(image: &Image) -> Result<(), String> {
    let functions = Functions::read(image)?;
    for root in DEVICE_LEVEL {
        if let Some((import, caller)) = reached(&functions, root)?.iter().find(|(i, _)| i != ANY_LEVEL) {
            return Err(format!("{root} reaches {import}, by {caller}"));
        }
    }
    Ok(())
}

/// What is called at `DISPATCH_LEVEL` with an object's handle.
const DISPATCH_LEVEL: &[&str] = &[
    "kmd_ddi::adapter::dpc_routine",
    "kmd_ddi::packets::submit_command_virtual",
    "kmd_ddi::packets::submit_command<",
    "kmd_ddi::packets::preempt_command",
    "kmd_ddi::query::calibrate_gpu_clock",
    "kmd_ddi::query::format_history_buffer",
    // With the second form, which has the same code: the linker keeps one of the two.
    "kmd_ddi::query::collect_dbg_info",
    "kmd_ddi::scheduling::submit_command_to_hw_queue",
    "kmd_ddi::fences::update_current_values",
    "kmd_ddi::fences::update_native_fence_logs",
    "kmd_ddi::fences::set_native_fence_log_buffer",
];

/// What the end of an adapter, a process or a mapping calls. At `DISPATCH_LEVEL` no reference is counted that could be
/// the last one, so that none of it is reached.
const ENDS: &[&str] = &["MmFreePagesFromMdl", "MmUnmapLockedPages", "ObfDereferenceObject", "IoFreeMdl"];

pub fn dispatch_level(image: &Image) -> Result<(), String> {
    let functions = Functions::read(image)?;
    for root in DISPATCH_LEVEL {
        if let Some((import, caller)) = reached(&functions, root)?.into_iter().find(|(i, _)| ENDS.contains(&i.as_str()))
        {
            return Err(format!("{root} reaches {import}, by {caller}"));
        }
    }
    Ok(())
}

/// The DDI makes what a queue's engine has written to its logs visible, where an engine leaves that to it
/// (`LogBarriers` 1): it takes the lock under which the engine writes. On one machine no play shows whether it does;
/// the code does, and that the lock suffices is shown by a test under loom (LOG-1).
///
/// Source: Native GPU fence objects, "Native fence log buffer barriers"; `DxgkDdiUpdateNativeFenceLogs`.
pub fn logs_are_locked(image: &Image) -> Result<(), String> {
    let root = "kmd_ddi::fences::update_native_fence_logs";
    let reached = reached(&Functions::read(image)?, root)?;
    for lock in ["KeAcquireSpinLockRaiseToDpc", "KeReleaseSpinLock"] {
        if !reached.iter().any(|(import, _)| import == lock) {
            return Err(format!("{root} does not reach {lock}"));
        }
    }
    Ok(())
}

/// Imports that the functions named `root` reach, each with a function that calls it.
fn reached(functions: &Functions, root: &str) -> Result<Vec<(String, String)>, String> {
    let found = functions.named(root);
    if found.is_empty() {
        return Err(format!("{root} is not in the image"));
    }
    Ok(found.into_iter().flat_map(|start| functions.reachable_imports(start)).collect())
}
