//! Monitored fences against toys of several kinds: with the basic implementation, with 32 bits, with an IOMMU.

use dxgkrnl_model::adapter::AdapterConfig;
use dxgkrnl_model::os::Os;
use dxgkrnl_model::personality::Personality;
use dxgkrnl_model::process::End;
use dxgkrnl_model::report::Report;
use nt_model::{CacheType, PageKind, Rights, UserMapping};
use wddm_abi::ntstatus::{STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED};
use wddm_abi::{D3DDDI_MAPGPUVIRTUALADDRESS, D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS, NTSTATUS};

use crate::client::{Client, Device, checked, thunk};
use crate::tour::windows;
use crate::toy::gpu::opcode;
use crate::toy::{Options, Toy};

/// `UINT_MAX / 2`.
const REACH: u64 = 0x7FFF_FFFF;

/// Plays with one device of one process on a toy; no rule may be broken.
#[track_caller]
fn play(options: Options, personality: Personality, body: impl FnOnce(&Device<'_>) -> Result<(), NTSTATUS>) -> Report {
    let os = Os::boot(personality).unwrap();
    let driver = os.load_driver(&Toy::driver(options)).unwrap();
    let adapter = os.add_adapter(&driver, AdapterConfig::default()).unwrap();
    let toy = Toy::last();
    let process = os.create_process("monitored.exe");
    let played = {
        let client = Client::new(&os, &process).unwrap();
        let device = client.device().unwrap();
        let played = body(&device);
        played.and(device.destroy())
    };
    process.end(End::Normal);
    let report = os.report();
    drop(adapter);
    os.shut_down();
    let broken: Vec<_> = os.report().broken().map(|rule| rule.rule.name).collect();
    assert!(broken.is_empty(), "{broken:?}: {:#?}", os.kernel().rules.violations());
    played.unwrap();
    let errors = toy.map(|toy| std::mem::take(&mut *toy.errors.lock().unwrap())).unwrap_or_default();
    assert!(errors.is_empty(), "{errors:?}");
    report
}

/// A toy of the lower rungs.
fn plain() -> Options {
    Options { user_mode: false, native_fences: false, ..Options::default() }
}

fn flags() -> D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS {
    D3DDDI_SYNCHRONIZATIONOBJECT_FLAGS::zeroed()
}

/// A packet and a kernel-mode buffer signal; the CPU waits.
fn signals(device: &Device<'_>) -> Result<(), NTSTATUS> {
    let commands = device.memory(4096, 0)?;
    let (context, fence) = (device.context()?, device.monitored_fence()?);
    for value in 1..=5 {
        commands.write(0, &[opcode::SIGNAL_MONITORED, fence.gpu, value]);
        device.submit(context, commands.gpu, 24)?;
        device.wait(fence.handle, value)?;
    }
    let queue = device.queue(false)?;
    for value in 6..=10 {
        commands.write(0, &[opcode::SIGNAL_MONITORED, fence.gpu, value]);
        device.submit_to_queue(queue, commands.gpu, 24, value - 5)?;
        device.wait(fence.handle, value)?;
    }
    Ok(())
}

#[test]
fn waits_end_with_buffers_where_nothing_interrupts() {
    let report = play(Options { silent: true, ..Options::default() }, windows(), signals);
    assert_eq!(report.counts.monitored_scans, 0);
    assert!(report.counts.completion_releases >= 10, "{:?}", report.counts);
}

#[test]
fn interrupts_end_waits_where_there_are_any() {
    for options in [Options::default(), plain()] {
        let report = play(options, windows(), signals);
        assert!(report.counts.monitored_scans >= 10, "{:?}", report.counts);
    }
}

#[test]
fn values_of_32_bits_wrap() {
    const LOW: u64 = 0x7_FFFF_FFFD;
    let options = Options { narrow: true, ..plain() };
    for silent in [false, true] {
        play(Options { silent, ..options }, windows(), |device| {
            let commands = device.memory(4096, 0)?;
            let (context, fence) = (device.context()?, device.monitored_fence_with(LOW, flags())?);
            let behind = fence.word() >> 32;
            for value in LOW + 1..LOW + 8 {
                commands.write(0, &[opcode::SIGNAL_MONITORED, fence.gpu, value]);
                device.submit(context, commands.gpu, 24)?;
                device.wait(fence.handle, value)?;
                assert_eq!(fence.word(), (behind << 32) | (value & 0xFFFF_FFFF));
            }
            let last = LOW + 7;
            assert_eq!(device.signal(fence.handle, last + REACH + 1), Err(STATUS_INVALID_PARAMETER));
            assert_eq!(device.wait(fence.handle, last + REACH + 1), Err(STATUS_INVALID_PARAMETER));
            device.signal(fence.handle, last + REACH)?;
            device.wait(fence.handle, last + REACH)?;
            // What is long past is over.
            device.wait(fence.handle, 1)?;
            assert_eq!(fence.word() >> 32, behind);
            // A command of the OS, behind a buffer.
            device.submit(context, commands.gpu, 0)?;
            device.signal_behind(context, fence.handle, last + REACH + 5)?;
            device.wait(fence.handle, last + REACH + 5)
        });
    }
}

#[test]
fn hardware_queues_count_in_32_bits() {
    play(Options { narrow: true, ..plain() }, windows(), |device| {
        let commands = device.memory(4096, 0)?;
        let queue = device.queue(false)?;
        for value in [1, 2, REACH, 2 * REACH, 3 * REACH] {
            commands.write(0, &[opcode::WRITE, commands.gpu + 256, value]);
            device.submit_to_queue(queue, commands.gpu, 24, value)?;
            device.wait(queue.progress, value)?;
            assert_eq!(commands.read(256), value);
        }
        Ok(())
    });
}

#[test]
fn a_fence_without_the_gpu_has_64_bits() {
    play(Options { narrow: true, ..plain() }, windows(), |device| {
        let fence = device.monitored_fence_with(1 << 40, flags().with_NoGPUAccess(true))?;
        assert_eq!((fence.gpu, fence.word()), (0, 1 << 40));
        device.signal(fence.handle, 1 << 60)?;
        assert_eq!(fence.word(), 1 << 60);
        device.wait(fence.handle, 1 << 60)
    });
}

#[test]
fn a_lost_device_leaves_the_values_that_it_was_told_to() {
    play(plain(), windows(), |device| {
        let lost = device.client.device()?;
        let commands = lost.memory(4096, 0)?;
        let made = |flags| lost.monitored_fence_with(3, flags);
        let (usual, kept) = (made(flags())?, made(flags().with_NoSignalMaxValueOnTdr(true))?);
        let reader = made(flags().with_NoSignal(true))?;
        let context = lost.context()?;
        commands.write(0, &[opcode::WRITE, 0x10_0000_0000, 1]);
        lost.submit(context, commands.gpu, 24)?;
        lost.lost()?;
        device.client.pass(10);
        // Who cannot signal a fence leaves it alone.
        assert_eq!([usual.word(), kept.word(), reader.word()], [u64::MAX, 3, 3]);
        lost.destroy()
    });
}

#[test]
fn values_are_uncached_where_devices_are_not_coherent() {
    for (io_coherent, cache) in [(true, CacheType::Cached), (false, CacheType::NonCached)] {
        let mut personality = windows();
        personality.io_coherent = io_coherent;
        play(plain(), personality, |device| {
            let fence = device.monitored_fence()?;
            let found = device.client.os.kernel().user_mapping(device.client.process.nt(), fence.cpu);
            assert_eq!(found.ok(), Some((cache, Rights::Read)));
            assert!(fence.cpu.is_multiple_of(8) && fence.gpu.is_multiple_of(8));
            signals(device)
        });
    }
}

#[test]
fn with_an_iommu_the_gpu_uses_the_address_of_the_cpu() {
    let options = Options { io_mmu: true, ..plain() };
    play(options, windows(), |device| {
        let (kernel, process) = (device.client.os.kernel(), device.client.process.nt());
        let fence = device.monitored_fence_with(4, flags())?;
        assert_eq!(fence.gpu, 0, "a GPU virtual address");
        let mapping = kernel.user_mapping(process, fence.cpu).ok();
        assert_eq!(mapping, Some((CacheType::Cached, Rights::ReadWrite)));
        // Commands are in the process's memory, too.
        let pages = kernel.allocate_pages(1, PageKind::User, 0).unwrap();
        let at = kernel.map_user(process, &UserMapping::whole(&pages, Rights::ReadWrite), None).unwrap();
        let commands = crate::client::Memory { handle: 0, gpu: at as u64, cpu: at };
        let context = device.context()?;
        for value in 5..10 {
            commands.write(0, &[opcode::SIGNAL_MONITORED, fence.cpu as u64, value]);
            device.submit(context, commands.gpu, 24)?;
            device.wait(fence.handle, value)?;
            assert_eq!(fence.word(), value);
        }
        // Who may not signal has no way to.
        let reader = device.monitored_fence_with(4, flags().with_NoSignal(true))?;
        assert_eq!(kernel.user_mapping(process, reader.cpu).map(|(_, rights)| rights).ok(), Some(Rights::Read));
        // There is no GPU address space to map things into.
        let mut map = D3DDDI_MAPGPUVIRTUALADDRESS::zeroed();
        map.hPagingQueue = device.paging;
        map.SizeInPages = 1;
        map.Protection.set_Zero(true);
        assert_eq!(checked(thunk!(device.client, D3DKMTMapGpuVirtualAddress(map))), Err(STATUS_NOT_SUPPORTED));
        kernel.unmap_user(process, at).unwrap();
        kernel.free_pages(&pages);
        Ok(())
    });
}
