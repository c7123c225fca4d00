//! What can be chosen about a toy.

use wddm_abi::{DXGK_PAGETABLEUPDATEMODE, DXGK_WDDMVERSION, DXGKDDI_INTERFACE_VERSION_WDDM3_2};

/// How this instance is built.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What it does wrong, or nothing.
    pub mutant: &'static str,
    /// `DRIVER_INITIALIZATION_DATA.Version`, and the version that goes with it.
    pub version: (u32, DXGK_WDDMVERSION),
    /// Has no GPU virtual addresses: neither GpuMmu nor IoMmu.
    pub physical: bool,
    /// Calls DxgkInitializeDisplayOnlyDriver.
    pub display_only: bool,
    /// How page tables are updated.
    pub update_mode: DXGK_PAGETABLEUPDATEMODE,
    /// Name queues instead of fences in native fence interrupts.
    pub optimized: bool,
    /// A component that is put to F1 when node 0 is idle for long.
    pub power_component: bool,
    /// Advertise user-mode submission; otherwise the nodes take work from the OS only.
    pub user_mode: bool,
    /// Advertise native fences.
    pub native_fences: bool,
    /// Physical doorbells on the device; each connection beyond takes one away from another queue.
    pub doorbells: usize,
    /// Bytes of a doorbell: as many whole pages as hold them.
    pub doorbell_bytes: u32,
    /// Bytes of a doorbell's secondary part; 0: secondary doorbells are not supported.
    pub secondary_bytes: u32,
    /// Doorbells lie in memory behind a BAR of the device, and the GPU looks at rings whose doorbell rang.
    pub doorbells_in_bar: bool,
    /// Ask to be told of every submission.
    pub notify: bool,
    /// Two page table levels instead of three.
    pub two_levels: bool,
    /// Engines can be reset one by one.
    pub engine_reset: bool,
    /// Take a context off the run list in `DxgkDdiSuspendContext` itself, where the engine does not hang.
    pub suspends_at_once: bool,
    /// An engine that seems to hang had left its work when it was reset: it says so behind its resumption, and goes on.
    pub lets_go_late: bool,
    /// Wants to be told of commands that are dropped.
    pub cancel_aware: bool,
    /// A fence write is skipped now and then, as by a chained adapter of a linked set: its log entry has no times.
    pub skips_writes: bool,
    /// Limits the addresses of native fences.
    pub fence_range: bool,
    /// Stores 32 bits to monitored fences.
    pub narrow: bool,
    /// Raises no interrupt for monitored fences.
    pub silent: bool,
    /// Uses the process's addresses, without page tables of its own.
    pub io_mmu: bool,
    /// Has memory of the OS for each allocation.
    pub pages_of_its_own: bool,
    /// Reads page table entries as byte addresses, as opposed to page numbers.
    pub pte_bytes: bool,
    /// A compute-only driver, for a device of class ComputeAccelerator.
    pub compute_only: bool,
    /// Advertises CrossAdapterResource, and serves the standard allocation that it is for.
    pub cross_adapter: bool,
    /// Physical adapters that act as one: engines, each with both nodes.
    pub engines: usize,
    /// The reset of node 1 takes node 0 along, which must have come off its work by then, or hang.
    pub dependent: bool,
    /// ResetHwEngine fails.
    pub resets_fail: bool,
    /// A page fault of a queue asks for a reset of the adapter.
    pub faults_reset_all: bool,
    /// An entry of the scheduling log that interrupts says so when node 0 does not hang: what it owes is over with a
    /// reset.
    pub log_waits: bool,
    /// Asks for the reset of node 0's engine as soon as that hangs.
    pub asks_for_reset: bool,
    /// Wants paging buffers in the aperture, which finds the allocation that each mapping there is for, if any.
    pub paging_aperture: bool,
    /// It has the interface of displays for I2C.
    pub has_i2c: bool,
    /// Milliseconds that ResetHwEngine takes.
    pub reset_takes: u64,
    /// Milliseconds behind ResumeHwEngine in which node 0 does nothing; if not 0, nothing from ResetHwEngine on.
    pub slow_start: u64,
}

impl Options {
    /// Pages of a doorbell in front of its secondary part.
    pub fn pages_in_front(&self) -> usize {
        (self.doorbell_bytes as usize).div_ceil(4096)
    }

    /// Pages of a doorbell with its secondary part.
    pub fn pages_of_a_doorbell(&self) -> usize {
        self.pages_in_front() + (self.secondary_bytes as usize).div_ceil(4096)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mutant: "",
            version: (DXGKDDI_INTERFACE_VERSION_WDDM3_2, DXGK_WDDMVERSION::DXGKDDI_WDDMv3_2),
            physical: false,
            display_only: false,
            update_mode: DXGK_PAGETABLEUPDATEMODE::DXGK_PAGETABLEUPDATE_GPU_PHYSICAL,
            optimized: false,
            power_component: false,
            user_mode: true,
            native_fences: true,
            doorbells: 4,
            doorbell_bytes: 8,
            secondary_bytes: 0,
            doorbells_in_bar: false,
            notify: false,
            two_levels: false,
            engine_reset: true,
            suspends_at_once: false,
            lets_go_late: false,
            cancel_aware: false,
            narrow: false,
            silent: false,
            io_mmu: false,
            pages_of_its_own: false,
            pte_bytes: false,
            cross_adapter: false,
            compute_only: false,
            skips_writes: false,
            fence_range: false,
            engines: 1,
            dependent: false,
            resets_fail: false,
            faults_reset_all: false,
            log_waits: false,
            asks_for_reset: false,
            paging_aperture: false,
            has_i2c: false,
            reset_takes: 0,
            slow_start: 0,
        }
    }
}
