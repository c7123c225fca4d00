//! The function on the bus that an adapter is: its resources, its configuration space, its interrupt.
//!
//! Chosen: a device without resources (root-enumerated) has a NULL `TranslatedResourceList` and no configuration space.
//! Without a connected interrupt `DxgkCbSynchronizeExecution` fails with STATUS_UNSUCCESSFUL, as its page says it may;
//! the model then runs `DxgkDdiUpdateMonitoredValues` under a lock of its own at the same device level.

pub(crate) mod object;
mod properties;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nt_model::mmio::DeviceRange;
use nt_model::{Interrupt, InterruptLine, PAGE_SIZE, PageObject, Trigger};
use wddm_abi::{CM_FULL_RESOURCE_DESCRIPTOR, CM_PARTIAL_RESOURCE_DESCRIPTOR, CM_RESOURCE_LIST, Plain};

use crate::port::edu::{Edu, EduRegisters};
use crate::port::shared::Shared;
use crate::port::sync::{Lock, Rank};

/// What stands on the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// QEMU's educational PCI function, 1234:11e8.
    #[default]
    Edu,
    /// A root-enumerated device: no registers.
    Root,
}

/// How the device interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterruptModel {
    /// A level-triggered line that other devices share.
    #[default]
    Line,
    /// One message.
    Message,
    /// None: synchronized execution fails.
    None,
    /// None, but synchronized execution works: the other reading of the DDI page DxgkCbSynchronizeExecution.
    SynchronizedOnly,
}

/// Where and how the adapter is attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceConfig {
    /// What it is.
    pub kind: DeviceKind,
    /// How it interrupts. A root-enumerated device has no line and no message.
    pub interrupts: InterruptModel,
    /// Pages of memory behind a second BAR, which keeps what is written, as the educational function's registers do
    /// not: at most 256. 0: it has none, as QEMU's. A root-enumerated device has none.
    pub memory_pages: usize,
}

/// Bytes of BAR 0 of the educational function.
pub(crate) const BAR0_BYTES: u64 = 1 << 20;
/// What never changes in the function's configuration space: offset and word. The words that are not here are zero,
/// or those that a bus gives out.
pub(crate) const CONFIG_SPACE: [(u32, u32); 5] = [
    (0x00, 0x11E8_1234),
    // Revision 0x10, class "unclassified device".
    (0x08, 0x00FF_0010),
    (0x2C, 0x1100_1AF4),
    (0x34, 0x40),
    // MSI, 64-bit, one message.
    (0x40, 0x0080_0005),
];
/// First BAR that is given out; each adapter of the process takes the next one.
const BAR0_FIRST: u64 = 0xE000_0000;
/// First place of the memory behind BAR 1; each adapter has one of [`BAR0_BYTES`].
const BAR1_FIRST: u64 = 0xD000_0000;
/// The device IRQL of every adapter.
pub(crate) const DEVICE_IRQL: u8 = 7;
/// Vector in the translated resources; only printed.
const VECTOR: u32 = 0x51;

/// `CmResourceTypeInterrupt`.
const TYPE_INTERRUPT: u8 = 2;
/// `CmResourceTypeMemory`.
const TYPE_MEMORY: u8 = 3;
/// `CmResourceShareDeviceExclusive`.
const EXCLUSIVE: u8 = 1;
/// `CmResourceShareShared`.
const SHARED: u8 = 3;
/// `CM_RESOURCE_INTERRUPT_LATCHED | CM_RESOURCE_INTERRUPT_MESSAGE`.
const FLAGS_MESSAGE: u16 = 3;
/// `PCIBus`.
const PCI_BUS: i32 = 5;

/// The device of one adapter.
#[derive(Debug)]
pub(crate) struct Device {
    index: usize,
    config: DeviceConfig,
    bar0: u64,
    edu: Option<Arc<Edu>>,
    /// The memory behind BAR 1, and where it is.
    memory: Option<(u64, Arc<PageObject>)>,
    range: Lock<Option<Arc<DeviceRange>>>,
    line: Option<Arc<InterruptLine>>,
    connection: Lock<Option<Arc<Interrupt>>>,
    /// `CM_RESOURCE_LIST`, kept in place for the driver's pointer.
    resources: Option<Box<ResourceList>>,
}

/// A resource list of up to three descriptors.
#[repr(C, align(8))]
#[derive(Debug)]
struct ResourceList {
    bytes: [u8; 80],
}

impl Device {
    pub(crate) fn new(shared: &Arc<Shared>, config: &DeviceConfig) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let index = NEXT.fetch_add(1, Ordering::Relaxed) % 256;
        let bar0 = BAR0_FIRST + index * BAR0_BYTES;
        let trigger = match (config.kind, config.interrupts) {
            (DeviceKind::Edu, InterruptModel::Line) => Some(Trigger::Level),
            (DeviceKind::Edu, InterruptModel::Message) => Some(Trigger::Message),
            _ => None,
        };
        let line = trigger.map(|trigger| InterruptLine::new("edu", trigger, 0));
        let edu = (config.kind == DeviceKind::Edu)
            .then(|| Arc::new(Edu::new(line.clone(), shared.personality().faults.lost_interrupt)));
        let range = edu.as_ref().and_then(|edu| {
            let registers = EduRegisters(edu.clone());
            shared.kernel().add_device_registers("edu BAR0", bar0, BAR0_BYTES, registers).ok()
        });
        let bar1 = BAR1_FIRST + index * BAR0_BYTES;
        let memory = (edu.is_some() && config.memory_pages != 0)
            .then(|| shared.kernel().add_device_memory(bar1, config.memory_pages).ok())
            .flatten()
            .map(|memory| (bar1, memory));
        let bytes = config.memory_pages as u64 * PAGE_SIZE as u64;
        let ranges: Vec<_> = [(bar0, BAR0_BYTES)].into_iter().chain(memory.as_ref().map(|_| (bar1, bytes))).collect();
        let resources = (config.kind == DeviceKind::Edu).then(|| Box::new(resource_list(&ranges, trigger)));
        Self {
            // CAST: below 256.
            index: index as usize,
            config: config.clone(),
            bar0,
            edu,
            memory,
            range: Lock::new(Rank::Leaf, range),
            line,
            connection: Lock::new(Rank::Leaf, None),
            resources,
        }
    }

    /// Where its registers are, if it has any.
    pub(crate) fn registers_address(&self) -> Option<u64> {
        self.edu.as_ref().map(|_| self.bar0)
    }

    /// Which adapter of the Linux process it is.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The educational function.
    pub(crate) fn edu(&self) -> Option<&Arc<Edu>> {
        self.edu.as_ref()
    }

    /// The interrupt, while it is connected.
    pub(crate) fn connection(&self) -> Option<Arc<Interrupt>> {
        self.connection.lock().clone()
    }

    /// Connects the driver's routine, or the model's own lock where there is no line.
    pub(crate) fn connect(&self, shared: &Shared, routine: impl Fn(u32) -> bool + Send + Sync + 'static) {
        let line = match &self.line {
            Some(line) => line.clone(),
            None => InterruptLine::new("none", Trigger::Level, 0),
        };
        let connected = shared.kernel().connect_interrupt(&line, DEVICE_IRQL, routine);
        *self.connection.lock() = connected;
    }

    /// Puts the device into D3 (`asleep`) or back into D0.
    pub(crate) fn set_asleep(&self, asleep: bool) {
        if let Some(edu) = &self.edu {
            edu.set_asleep(asleep);
        }
    }

    /// Puts the device back on the bus after a removal, in D0.
    pub(crate) fn plug(&self) {
        if let Some(edu) = &self.edu {
            edu.plug();
        }
    }

    /// Disconnects it.
    pub(crate) fn disconnect(&self, shared: &Shared) {
        let old = self.connection.lock().take();
        if let Some(interrupt) = old {
            shared.kernel().disconnect_interrupt(&interrupt);
        }
        if let Some(edu) = &self.edu {
            edu.reset();
        }
    }

    /// Whether a driver can synchronize with an interrupt.
    pub(crate) fn can_synchronize(&self) -> bool {
        self.line.is_some() || self.config.interrupts == InterruptModel::SynchronizedOnly
    }

    /// Whether the line is shared with other devices.
    pub(crate) fn shares_line(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.trigger() == Trigger::Level)
    }

    /// Takes the registers and the memory off the bus.
    pub(crate) fn unplug(&self, shared: &Shared) {
        if let Some(memory) = self.memory() {
            shared.kernel().remove_device_memory(memory);
        }
        let old = self.range.lock().take();
        if let Some(range) = old {
            shared.kernel().remove_device_registers(&range);
        }
    }

    /// `TranslatedResourceList`, or NULL.
    pub(crate) fn resources(&self) -> *mut CM_RESOURCE_LIST {
        self.resources.as_ref().map_or(core::ptr::null_mut(), |list| list.bytes.as_ptr().cast_mut().cast())
    }

    /// Whether the range is one of the resources.
    pub(crate) fn owns(&self, base: u64, length: u64) -> bool {
        let end = base.checked_add(length);
        let in_range = |first: u64, bytes: u64| base >= first && end.is_some_and(|end| end <= first + bytes);
        let memory = self.memory.as_ref().map(|(first, memory)| (*first, memory.pages() as u64 * PAGE_SIZE as u64));
        self.edu.is_some()
            && length != 0
            && (in_range(self.bar0, BAR0_BYTES) || memory.is_some_and(|(first, bytes)| in_range(first, bytes)))
    }

    /// The memory behind BAR 1.
    pub(crate) fn memory(&self) -> Option<&Arc<PageObject>> {
        self.memory.as_ref().map(|(_, memory)| memory)
    }

    /// Ids of vendor, device and subsystem and the revision, from configuration space; zeros for a device without one.
    pub(crate) fn ids(&self) -> wddm_abi::D3DKMT_DEVICE_IDS {
        let word =
            |offset| u32::from_le_bytes(core::array::from_fn(|at| self.config_byte(offset + at as u32).unwrap_or(0)));
        let (ids, revision, subsystem) = (word(0x00), word(0x08), word(0x2C));
        let mut answer = wddm_abi::D3DKMT_DEVICE_IDS::zeroed();
        (answer.VendorID, answer.DeviceID) = (ids & 0xFFFF, ids >> 16);
        (answer.SubVendorID, answer.SubSystemID) = (subsystem & 0xFFFF, subsystem >> 16);
        answer.RevisionID = revision & 0xFF;
        answer
    }

    /// A byte of PCI configuration space; `None` beyond it or without one.
    pub(crate) fn config_byte(&self, offset: u32) -> Option<u8> {
        self.edu.as_ref()?;
        let word = match offset & !3 {
            0x04 => 0x0010_0006,
            // CAST: BAR 0 lies below 4 GiB.
            0x10 => self.bar0 as u32,
            // CAST: as above.
            0x14 => self.memory.as_ref().map_or(0, |(bar1, _)| *bar1 as u32),
            0x3C => 0x0100 | 10,
            offset if offset < 0x100 => CONFIG_SPACE.iter().find(|(at, _)| *at == offset).map_or(0, |(_, word)| *word),
            _ => return None,
        };
        Some(word.to_le_bytes()[(offset & 3) as usize])
    }
}

/// `ranges`: address and bytes of each BAR, one or two.
fn resource_list(ranges: &[(u64, u64)], trigger: Option<Trigger>) -> ResourceList {
    const DESCRIPTOR: usize = size_of::<CM_PARTIAL_RESOURCE_DESCRIPTOR>();
    let mut list = CM_RESOURCE_LIST::zeroed();
    list.Count = 1;
    let full: &mut CM_FULL_RESOURCE_DESCRIPTOR = &mut list.List[0];
    full.InterfaceType = PCI_BUS;
    full.PartialResourceList.Version = 1;
    full.PartialResourceList.Revision = 1;
    // CAST: two at most.
    full.PartialResourceList.Count = ranges.len() as u32 + u32::from(trigger.is_some());
    let mut bytes = [0; 80];
    // One descriptor is part of the list's own record.
    let mut at = size_of::<CM_RESOURCE_LIST>() - DESCRIPTOR;
    bytes[..at].copy_from_slice(&list.as_bytes()[..at]);
    for (base, length) in ranges {
        let mut memory = CM_PARTIAL_RESOURCE_DESCRIPTOR::zeroed();
        memory.Type = TYPE_MEMORY;
        memory.ShareDisposition = EXCLUSIVE;
        // CAST: low and high half; the length is 1 MiB at most.
        memory.u = [*base as u32, (*base >> 32) as u32, *length as u32, 0];
        bytes[at..at + DESCRIPTOR].copy_from_slice(memory.as_bytes());
        at += DESCRIPTOR;
    }
    if let Some(trigger) = trigger {
        let mut interrupt = CM_PARTIAL_RESOURCE_DESCRIPTOR::zeroed();
        interrupt.Type = TYPE_INTERRUPT;
        interrupt.ShareDisposition = if trigger == Trigger::Level { SHARED } else { EXCLUSIVE };
        interrupt.Flags = if trigger == Trigger::Level { 0 } else { FLAGS_MESSAGE };
        interrupt.u = [DEVICE_IRQL.into(), VECTOR, 3, 0];
        bytes[at..at + DESCRIPTOR].copy_from_slice(interrupt.as_bytes());
    }
    ResourceList { bytes }
}
