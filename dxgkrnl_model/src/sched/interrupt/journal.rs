//! What a driver has reported by `DxgkCbNotifyInterrupt`, in order: for tests.

use std::collections::{BTreeMap, VecDeque};

use wddm_abi::{DXGK_INTERRUPT_TYPE, DXGKARGCB_NOTIFY_INTERRUPT_DATA};

use super::Interrupts;
use super::{Notice, Signaled};
use crate::port::miniport::{JOURNAL, Miniport};
use crate::port::sync::{Lock, Rank};

/// One `DxgkCbNotifyInterrupt` that made sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// `InterruptType`.
    pub kind: DXGK_INTERRUPT_TYPE,
    /// The node.
    pub node: u32,
    /// Of native fences: those that the array names, by Dxgkrnl's handles. Empty: the array was NULL.
    pub fences: Vec<u64>,
    /// Of native fences: it named a hardware queue, and the driver has the optimized interrupt.
    pub names_queue: bool,
    /// Of native fences: `EvaluateLegacyMonitoredFences`.
    pub legacy: bool,
}

impl Notification {
    /// Whether it is `DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED`.
    pub fn is_native_fence(&self) -> bool {
        self.kind == DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_NATIVE_FENCE_SIGNALED
    }
}

/// The last [`JOURNAL`] notifications of an adapter, and how many there were of each kind.
#[derive(Debug)]
pub(super) struct Journal {
    kept: Lock<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    list: VecDeque<Notification>,
    kinds: BTreeMap<DXGK_INTERRUPT_TYPE, u64>,
    /// Native fences that notifications have named.
    named: u64,
    /// Notifications of native fences alone that named none.
    unnamed: u64,
}

impl Journal {
    pub(super) fn new() -> Self {
        Self { kept: Lock::new(Rank::Leaf, Kept::default()) }
    }

    /// How many there were of each kind.
    pub(super) fn kinds(&self) -> BTreeMap<DXGK_INTERRUPT_TYPE, u64> {
        self.kept.lock().kinds.clone()
    }

    /// How many native fences notifications have named, each as often as it was named.
    pub(super) fn fences_named(&self) -> u64 {
        self.kept.lock().named
    }

    /// How many notifications said that native fences were signaled, and neither which nor that monitored ones may have
    /// been.
    pub(super) fn fences_unnamed(&self) -> u64 {
        self.kept.lock().unnamed
    }

    pub(super) fn note(&self, data: &DXGKARGCB_NOTIFY_INTERRUPT_DATA, node: usize, notice: &Notice) {
        let mut entry = Notification {
            kind: data.InterruptType,
            // CAST: a node's number.
            node: node as u32,
            fences: Vec::new(),
            names_queue: false,
            legacy: false,
        };
        if let Notice::Native { signaled, legacy } = notice {
            entry.fences = signaled.fences().iter().map(|fence| fence.handle()).collect();
            entry.names_queue = matches!(signaled, Signaled::Queue(Some(_)));
            entry.legacy = *legacy;
        }
        let mut kept = self.kept.lock();
        kept.named += entry.fences.len() as u64;
        kept.unnamed += u64::from(entry.is_native_fence() && entry.fences.is_empty() && !entry.legacy);
        *kept.kinds.entry(entry.kind).or_default() += 1;
        if kept.list.len() == JOURNAL {
            kept.list.pop_front();
        }
        kept.list.push_back(entry);
    }
}

impl Miniport {
    /// What its driver reported last by `DxgkCbNotifyInterrupt`, in order: at most [`JOURNAL`]. Notifications that
    /// break a rule about what they name are not in it.
    pub fn notification_journal(&self) -> Vec<Notification> {
        Interrupts::of(self).journal.kept.lock().list.iter().cloned().collect()
    }

    /// How many notifications of a kind there were.
    pub fn notifications_of(&self, kind: DXGK_INTERRUPT_TYPE) -> u64 {
        Interrupts::of(self).journal.kept.lock().kinds.get(&kind).copied().unwrap_or_default()
    }
}
