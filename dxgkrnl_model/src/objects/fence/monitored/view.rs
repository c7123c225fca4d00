//! Where a process and its GPU see a page.

use std::sync::Arc;

use nt_model::{CacheType, Rights, UserMapping};
use wddm_abi::{NTSTATUS, ntstatus};

use crate::memory::VidMm;
use crate::memory::fence::place::ObjectPage;
use crate::memory::page_table::Purpose;
use crate::memory::pages::cache_of;
use crate::memory::residency::status_of;
use crate::memory::space::Content;
use crate::memory::va::{Use, Wanted};
use crate::objects::process::ProcessAdapter;

/// How long a late mapping takes, in units of 100 ns.
const LATE: i64 = 10_000;

/// The addresses of a page in a process; 0 where the page has none.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// User address of the page.
    pub(crate) user: usize,
    /// GPU virtual address of the page.
    pub(crate) gpu: u64,
}

/// What user mode sees of a page.
#[derive(Clone, Debug)]
pub(crate) struct ForUser {
    pub(crate) page: ObjectPage,
    pub(crate) cache: CacheType,
    pub(crate) rights: Rights,
}

/// What the GPU sees, and where.
#[derive(Clone, Debug)]
pub(crate) struct ForGpu<'a> {
    pub(crate) content: Content,
    pub(crate) wanted: &'a Wanted,
    /// The page holds values of native fences.
    pub(crate) native_fence: bool,
}

impl View {
    /// Shows a page: `content` to the GPU, `user` read-only to user mode.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what paging ended with.
    pub(crate) fn create(
        gpu_process: &Arc<ProcessAdapter>,
        content: Content,
        user: Option<ObjectPage>,
        wanted: &Wanted,
        native_fence: bool,
    ) -> Result<Self, NTSTATUS> {
        let user = user.map(|page| ForUser { page, cache: CacheType::Cached, rights: Rights::Read });
        Self::show(gpu_process, user, Some(ForGpu { content, wanted, native_fence }))
    }

    /// Shows a page to the GPU where `gpu` says so, and to user mode where `user` does. Where the personality maps
    /// fences late, a failure to map one is an event of the report.
    ///
    /// IRQL: PASSIVE_LEVEL.
    ///
    /// # Errors
    /// STATUS_NO_MEMORY, or what paging ended with.
    pub(crate) fn show(
        gpu_process: &Arc<ProcessAdapter>,
        user: Option<ForUser>,
        gpu: Option<ForGpu<'_>>,
    ) -> Result<Self, NTSTATUS> {
        let mut view = Self::default();
        if let Some(gpu) = gpu {
            view.show_to_gpu(gpu_process, gpu).inspect_err(|_| view.remove(gpu_process))?;
        }
        if let Some((user, process)) = user.zip(gpu_process.process()) {
            let (object, first) = user.page;
            let cache = cache_of(&object, user.cache);
            let mapping = UserMapping { object, first, pages: 1, rights: user.rights, cache };
            match gpu_process.adapter().kernel().map_user(process.nt(), &mapping, None) {
                Ok(address) => view.user = address,
                Err(_) => {
                    view.remove(gpu_process);
                    return Err(ntstatus::STATUS_NO_MEMORY);
                }
            }
        }
        Ok(view)
    }

    fn show_to_gpu(&mut self, gpu_process: &Arc<ProcessAdapter>, gpu: ForGpu<'_>) -> Result<(), NTSTATUS> {
        let adapter = gpu_process.adapter();
        let manager = VidMm::of(adapter).manager().ok_or(ntstatus::STATUS_DEVICE_REMOVED)?;
        let address = gpu_process.address_space().insert(gpu.wanted, Use::System).ok_or(ntstatus::STATUS_NO_MEMORY)?;
        self.gpu = address;
        let content = gpu.content;
        let purpose = Purpose { native_fence: gpu.native_fence, ..Purpose::default() };
        let this = gpu_process.clone();
        if adapter.personality().user_mode.fences_mapped_late {
            manager.post(
                adapter,
                Box::new(move |adapter, manager| {
                    adapter.kernel().delay_execution(-LATE);
                    // The call that made the fence has returned, so a failure goes into the list of events.
                    if let Err(error) = this.set_entries(adapter, manager, address, 1, &content, purpose) {
                        adapter.note_event(format!("a fence is not mapped at {address:#x}: {error:?}"));
                    }
                }),
            );
            return Ok(());
        }
        let shown = manager.run_on_worker(adapter, move |adapter, manager| {
            this.set_entries(adapter, manager, address, 1, &content, purpose)
        });
        shown.ok_or(ntstatus::STATUS_SYSTEM_SHUTDOWN)?.map_err(status_of)
    }

    /// Removes the page from user mode and from the GPU's address space.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub(crate) fn remove(&self, gpu_process: &Arc<ProcessAdapter>) {
        if self.user != 0 {
            gpu_process.take_from_user(self.user);
        }
        if self.gpu == 0 {
            return;
        }
        let (this, gpu) = (gpu_process.clone(), self.gpu);
        let Some(manager) = VidMm::of(gpu_process.adapter()).manager() else { return };
        manager.run_on_worker(gpu_process.adapter(), move |adapter, manager| {
            let _ = this.set_entries(adapter, manager, gpu, 1, &Content::None, Purpose::default());
            this.address_space().with_ranges(|ranges| ranges.remove(gpu, 0));
        });
    }
}
