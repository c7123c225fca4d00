//! Where the values of fences are, and who sees them there: what the OS does without asking the driver.

use dxgkrnl_model::personality::{NativeFenceOsCaps, Personality};
use dxgkrnl_model::process::End;
use nt_model::{PageKind, PageObject, Rights};
use std::cell::RefCell;
use std::sync::Arc;
use wddm_abi::{D3DDDI_NATIVEFENCE_TYPE, D3DDDI_NATIVEFENCEINFO, NTSTATUS};

use crate::client::{Client, Device, Fence};
use crate::toy::gpu::{COHERENT, WRITE};
use crate::toy::memory::want;
use crate::toy::{Options, Root, Toy};
use crate::{assert_clean, tour};

/// Plays with one device of one process; no rule may be broken.
#[track_caller]
fn play(windows: Personality, act: impl Fn(&Toy, &Device<'_>) -> Result<(), NTSTATUS>) {
    let ended = tour::play(Options::default(), windows, 1, |os, toy| {
        let process = os.create_process("storage.exe");
        let result = Client::new(os, &process).and_then(|client| {
            let device = client.device()?;
            act(toy, &device)?;
            device.destroy()
        });
        process.end(End::Normal);
        result.map_err(|status| format!("{status:?}"))
    });
    assert_clean(&ended, "storage");
}

/// The root page table of the process, as a context of it has it.
fn root(toy: &Toy, device: &Device<'_>) -> Result<Root, NTSTATUS> {
    device.context()?;
    let state = toy.state();
    let mut mine = state.contexts.iter().filter(|(handle, _)| **handle != state.system_context);
    Ok(mine.find_map(|(_, context)| context.root).expect("a context with a root page table"))
}

/// The page behind a GPU virtual address of a fence's value.
fn page(toy: &Toy, root: Root, device: &Device<'_>, address: u64) -> (Arc<PageObject>, usize) {
    let at = toy.translate(root, address, false).expect("the GPU may read it");
    let (object, index, offset) = device.client.os.kernel().page_at(at).expect("a page of memory");
    assert_eq!(offset as u64, address % 4096);
    (object, index)
}

type Kind = (&'static str, fn(&mut D3DDDI_NATIVEFENCEINFO));

/// Fences that the process alone has, that it may share, that other adapters may open.
const KINDS: [Kind; 3] = [
    ("packed", |_| ()),
    ("shared", |info| {
        info.Flags.set_Shared(true);
        info.Flags.set_NtSecuritySharing(true);
    }),
    ("cross-adapter", |info| {
        info.Flags.set_Shared(true);
        info.Flags.set_NtSecuritySharing(true);
        info.Flags.set_CrossAdapter(true);
    }),
];

/// One fence for engines of one GPU.
const INTRA_GPU: Kind = ("intra-GPU", |info| info.Type = D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU);

/// A Windows that knows intra-GPU fences.
fn windows() -> Personality {
    let mut windows = tour::windows();
    windows.native_fence_os_caps = NativeFenceOsCaps { optimized_default: false, intra_gpu: true };
    windows
}

/// The CPU sees the current value read-only, and the monitored one in kernel mode alone; the GPU only reads the latter.
#[test]
fn user_mode_has_no_mapping_of_the_monitored_value() {
    play(windows(), |toy, device| {
        let kernel = device.client.os.kernel();
        let root = root(toy, device)?;
        for (kind, change) in KINDS.into_iter().chain([INTRA_GPU]) {
            let (fence, monitored) = device.native_fence_with(change)?;
            let (current, index) = page(toy, root, device, fence.gpu);
            let seen = kernel.user_mappings_of(&current, index);
            if kind == INTRA_GPU.0 {
                assert_eq!((fence.cpu, seen), (0, vec![]), "{kind}: the current value");
            } else {
                let mine = (device.client.process.nt().id(), fence.cpu & !0xFFF, Rights::Read);
                assert_eq!(seen, [mine], "{kind}: the current value");
            }
            let (object, index) = page(toy, root, device, monitored);
            assert_eq!(kernel.user_mappings_of(&object, index), [], "{kind}: the monitored value");
            assert_ne!((object.id(), index), (current.id(), 0), "{kind}: both values in one page");
            assert_eq!(toy.translate(root, monitored, true), None, "{kind}: the GPU may write it");
            assert!(toy.translate(root, fence.gpu, true).is_some(), "{kind}: the GPU may not write");
        }
        Ok(())
    });
}

/// Values in system memory are in pages of the OS's own, which hold nothing else; it gives the pages back by itself.
#[test]
fn values_in_system_memory_are_in_pages_of_the_os() {
    let objects = RefCell::new(Vec::new());
    play(tour::windows(), |toy, device| {
        let root = root(toy, device)?;
        for (kind, change) in KINDS {
            let made: [(Fence, u64); 2] = [device.native_fence_with(change)?, device.native_fence_with(change)?];
            let [(first, _), (second, _)] = made;
            let together = page(toy, root, device, first.gpu).0.id() == page(toy, root, device, second.gpu).0.id();
            assert_eq!(together, kind == "packed", "{kind}: two fences in one page");
            for (fence, monitored) in made {
                for address in [fence.gpu, monitored] {
                    let (object, index) = page(toy, root, device, address);
                    let found = (object.kind(), object.pages(), index);
                    assert_eq!(found, (PageKind::System, 1, 0), "{kind}: not a page of the OS's");
                    objects.borrow_mut().push(object);
                }
            }
            device.destroy_fence(first.handle)?;
            device.destroy_fence(second.handle)?;
        }
        Ok(())
    });
    // Packed ones with the process.
    assert!(objects.borrow().iter().all(|object| object.is_freed()));
}

/// Page table entries of system memory ask for coherency where the platform has it, and nowhere else.
#[test]
fn entries_ask_for_coherency_where_devices_are_coherent() {
    for io_coherent in [true, false] {
        let windows = Personality { io_coherent, ..tour::windows() };
        play(windows, |toy, device| {
            let root = root(toy, device)?;
            let fence = device.monitored_fence()?;
            let (system, local) = (device.memory(4096, 0)?, device.memory(4096, want::LOCAL)?);
            let coherent = |address: u64| toy.entry(root, address).map(|entry| (entry & WRITE, entry & COHERENT != 0));
            assert_eq!(coherent(fence.gpu), Some((WRITE, io_coherent)), "a monitored fence");
            assert_eq!(coherent(system.gpu), Some((WRITE, io_coherent)), "memory of the system");
            assert_eq!(coherent(local.gpu), Some((WRITE, false)), "local memory");
            Ok(())
        });
    }
}
