//! A driver image, through its whole life: load, DriverEntry, its threads and DPCs, unload, no leaks.
//!
//! The image is the one that was built last, `out/fencepost.sys`, or the one that `NT_MODEL_TEST_SYS` names.

use core::mem::offset_of;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use wddm_abi::DRIVER_INITIALIZATION_DATA;

use nt_model::io::StartError;
use nt_model::records_io::DriverObject;
use nt_model::sched::seeded::{SeededOptions, SeededScheduler};
use nt_model::{DpcDelivery, In, Kernel, KernelConfig, LoadOptions, shims};

type Case = fn(&Path) -> Result<(), String>;

const CASES: &[(&str, Case)] = &[
    ("loads_at_another_base_with_every_import", loads),
    ("lives_and_leaves_nothing", |path| life(path, KernelConfig::collecting())),
    ("lives_with_remote_dpcs", |path| {
        life(path, KernelConfig { dpc_delivery: DpcDelivery::Remote, ..KernelConfig::collecting() })
    }),
    ("lives_with_guard_pages", |path| {
        let mut config = KernelConfig::collecting();
        config.pool.guard_pages = true;
        life(path, config)
    }),
    ("lives_under_a_hundred_schedules", schedules),
    ("comes_back_from_each_failing_allocation", survives_failures),
];

shims! {
    /// Just enough of Dxgkrnl for a display miniport's entry point: `DxgkInitialize(DriverObject, RegistryPath, Table)`
    /// takes any table, and has the table's `DxgkDdiUnload` called at unload. It takes no argument, so that the driver
    /// object, which an unload routine gets, does not disturb it.
    table DXGKRNL;

    fn DxgkInitialize(_m, driver: In<DriverObject>, _path: usize, table: In<[usize; UNLOAD + 1]>) -> i32 {
        driver.get().driver_unload.store(table.get()[UNLOAD], Ordering::Relaxed);
        0
    }
}

/// Where a table has `DxgkDdiUnload`, in words.
const UNLOAD: usize = offset_of!(DRIVER_INITIALIZATION_DATA, DxgkDdiUnload) / size_of::<usize>();

/// A machine with a `\Device\DxgKrnl` that answers displib's handshake.
fn machine(config: KernelConfig) -> Kernel {
    let kernel = Kernel::new(config);
    kernel.register_device("\\Device\\DxgKrnl", |request| {
        // STATUS_INVALID_DEVICE_REQUEST. CAST: the signed reading of the published number.
        if request.write_pointer(DXGKRNL[0].address.get()) { 0 } else { 0xC000_0010_u32 as i32 }
    });
    kernel
}

fn main() -> ExitCode {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../out/fencepost.sys");
    let path = std::env::var_os("NT_MODEL_TEST_SYS").map_or_else(built, PathBuf::from);
    if !path.exists() {
        println!("{} is not there: ./x image builds it", path.display());
        return ExitCode::FAILURE;
    }
    let (mut passed, mut failed) = (0, 0);
    for (name, case) in CASES {
        match case(&path) {
            Ok(()) => {
                println!("test {name} ... ok");
                passed += 1;
            }
            Err(why) => {
                println!("test {name} ... FAILED: {why}");
                failed += 1;
            }
        }
    }
    println!("test result: {passed} passed; {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn loads(path: &Path) -> Result<(), String> {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let image = kernel.load_driver(path, &LoadOptions::default()).map_err(|error| error.to_string())?;
    if image.base() as u64 == image.preferred_base() {
        return Err("not relocated".to_owned());
    }
    if !image.missing_imports().is_empty() {
        return Err(format!("missing imports: {:?}", image.missing_imports()));
    }
    println!(
        "  {} at {:#x}, {} imports, {} relocations, sha256 {}",
        image.name(),
        image.base(),
        image.imports().len(),
        image.relocations(),
        image.sha256_hex()
    );
    if kernel.unload_image(&image) { Ok(()) } else { Err("still mapped".to_owned()) }
}

fn life(path: &Path, config: KernelConfig) -> Result<(), String> {
    let kernel = machine(config);
    let _in = kernel.enter();
    let image = kernel.load_driver(path, &LoadOptions::default()).map_err(|error| error.to_string())?;
    let driver = kernel.start_driver(&image, "test").map_err(|error| error.to_string())?;
    kernel.unload_driver(&driver).map_err(|error| error.to_string())?;
    for message in kernel.debug_messages() {
        println!("  | {message}");
    }
    for (entry, bytes) in kernel.stack_high_water() {
        println!("  stack {entry}: {bytes}");
    }
    println!("  {} rules evaluated", kernel.rules.rules_run());
    match kernel.rules.violations().first() {
        None => Ok(()),
        Some(violation) => Err(violation.to_string()),
    }
}

/// The same life under schedules drawn from seeds. Each must be clean; the same seed must give the same schedule.
fn schedules(path: &Path) -> Result<(), String> {
    let mut different = BTreeSet::new();
    for seed in 0..100 {
        let run = || -> Result<_, String> {
            let scheduler = SeededScheduler::new(SeededOptions { one_in: 2, ..SeededOptions::new(seed) });
            let kernel = machine(KernelConfig { scheduler: Some(scheduler.clone()), ..KernelConfig::collecting() });
            let _in = kernel.enter();
            let image = kernel.load_driver(path, &LoadOptions::default()).map_err(|error| error.to_string())?;
            let driver = kernel.start_driver(&image, "test").map_err(|error| error.to_string())?;
            kernel.unload_driver(&driver).map_err(|error| error.to_string())?;
            match kernel.rules.violations().first() {
                None => Ok(scheduler.decisions()),
                Some(violation) => Err(format!("seed {seed}: {violation}")),
            }
        };
        let decisions = run()?;
        if decisions != run()? {
            return Err(format!("seed {seed} gave two schedules"));
        }
        different.insert(decisions.iter().map(|decision| (decision.step, decision.thread)).collect::<Vec<_>>());
    }
    println!("  {} different schedules", different.len());
    Ok(())
}

/// Lets the first, second, third … allocation fail. What the driver does then is its affair, and printed; the model
/// must come back each time.
fn survives_failures(path: &Path) -> Result<(), String> {
    for nth in 1..100 {
        let kernel = machine(KernelConfig::collecting());
        let _in = kernel.enter();
        let image = kernel.load_driver(path, &LoadOptions::default()).map_err(|error| error.to_string())?;
        kernel.fail_allocation(nth);
        match kernel.start_driver(&image, "test") {
            Ok(driver) => _ = kernel.unload_driver(&driver),
            Err(StartError::Abandoned(_)) => (),
            Err(_) => _ = kernel.unload_image(&image),
        }
        if kernel.allocations_until_failure() != 0 {
            println!("  {} allocations tried", nth - 1);
            return Ok(());
        }
        for violation in kernel.rules.violations() {
            println!("  allocation {nth} fails: {}: {}", violation.rule.name, violation.detail);
        }
    }
    Err("more than 100 allocations".to_owned())
}
