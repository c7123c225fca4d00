//! What a driver left behind: looked for when it is unloaded, or when a native driver's host asks.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::cpu::Site;
use crate::image::Image;
use crate::interrupt::KINTERRUPT;
use crate::kernel::Machine;
use crate::memory::PageKind;
use crate::memory::regions::Purpose;
use crate::pool::{PoolUse, tag_text};
use crate::rules::{Details, Rule};
use crate::rules_memory::{NT_MAP_LEAKED, NT_MDL_LEAKED, NT_PAGES_LEAKED};
use crate::rules_nt::{
    NT_BUG_CHECK_LEAKED, NT_DPC_LEAKED, NT_ETW_LEAKED, NT_HANDLE_LEAKED, NT_INT_LEAKED, NT_LOOKASIDE_LEAKED,
    NT_POOL_LEAKED, NT_RESOLUTION_LEAKED, NT_THREAD_LEAKED, NT_TIMER_LEAKED,
};
use crate::thread::ThreadKind;

/// Whose leftovers to look for.
#[derive(Clone, Debug)]
enum Scope {
    /// Everything that native code made.
    Native,
    /// What this image made.
    Image(Range<usize>),
}

impl Scope {
    fn has(&self, site: &Site) -> bool {
        match self {
            Self::Native => site.is_native_driver(),
            Self::Image(range) => range.contains(&site.address),
        }
    }
}

/// One thing left behind.
#[derive(Clone, Debug)]
pub struct Leak {
    /// The rule that it breaks.
    pub rule: &'static Rule,
    /// What, and who made it.
    pub text: String,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Machine {
    /// Looks for everything that native driver code made and did not take back; breaks the rule of each. Call it when a
    /// native driver has been stopped. Driver code is what runs inside [`call_driver`](Self::call_driver), system
    /// threads and DPCs included.
    pub fn check_native_leaks(&self) -> Vec<Leak> {
        self.check_leaks(&Scope::Native)
    }

    fn check_leaks(&self, scope: &Scope) -> Vec<Leak> {
        self.check_freed_pool();
        self.check_guards();
        let mut leaks = Vec::new();
        self.pool_leaks(scope, &mut leaks);
        self.thread_leaks(scope, &mut leaks);
        self.queue_leaks(scope, &mut leaks);
        self.memory_leaks(scope, &mut leaks);
        for (handle, kind, opened_by) in self.objects.open_handles() {
            if scope.has(&opened_by) {
                let text = format!("{kind} handle {handle:#x}, by {}", opened_by.describe(self));
                leaks.push(Leak { rule: &NT_HANDLE_LEAKED, text });
            }
        }
        for (handle, site) in self.etw.registered() {
            if scope.has(&site) {
                let text = format!("ETW registration {handle:#x}, by {}", site.describe(self));
                leaks.push(Leak { rule: &NT_ETW_LEAKED, text });
            }
        }
        for (record, site) in self.bug_check_callbacks.registered() {
            if scope.has(&site) {
                let text = format!("the callback record at {record:#x}, by {}", site.describe(self));
                leaks.push(Leak { rule: &NT_BUG_CHECK_LEAKED, text });
            }
        }
        for (address, site) in self.paired.lookasides() {
            if scope.has(&site) {
                let text = format!("the lookaside list at {address:#x}, by {}", site.describe(self));
                leaks.push(Leak { rule: &NT_LOOKASIDE_LEAKED, text });
            }
        }
        for (resolution, site) in self.paired.resolutions() {
            if scope.has(&site) {
                let text = format!("a clock of {resolution} times 100 ns, by {}", site.describe(self));
                leaks.push(Leak { rule: &NT_RESOLUTION_LEAKED, text });
            }
        }
        for rule in LEAK_RULES {
            let found: Vec<_> = leaks.iter().filter(|leak| std::ptr::eq(leak.rule, *rule)).collect();
            self.rules.check(rule, found.is_empty(), || {
                let list: Vec<_> = found.iter().take(10).map(|leak| leak.text.as_str()).collect();
                let more = found.len().saturating_sub(list.len());
                let more = if more == 0 { String::new() } else { format!("; and {more} more") };
                Details::new(format!("{} left: {}{more}", found.len(), list.join("; "))).params([
                    0,
                    0,
                    found.len() as u64,
                ])
            });
        }
        leaks
    }

    fn pool_leaks(&self, scope: &Scope, leaks: &mut Vec<Leak>) {
        for leak in self.pool.outstanding(self).into_iter().filter(|leak| scope.has(&leak.at)) {
            let (rule, what): (&'static Rule, _) = match leak.used_as {
                PoolUse::Driver => (&NT_POOL_LEAKED, format!("tag '{}'", tag_text(leak.tag))),
                PoolUse::Service("an MDL") => (&NT_MDL_LEAKED, "an MDL".to_owned()),
                PoolUse::PagesMdl => (&NT_MDL_LEAKED, "an MDL of MmAllocatePagesForMdlEx".to_owned()),
                PoolUse::Service(KINTERRUPT) => (&NT_INT_LEAKED, KINTERRUPT.to_owned()),
                PoolUse::Service(what) => (&NT_POOL_LEAKED, what.to_owned()),
            };
            let text = format!("{:#x} bytes at {:#x}, {what}, by {}", leak.size, leak.address, leak.site);
            leaks.push(Leak { rule, text });
        }
    }

    fn thread_leaks(&self, scope: &Scope, leaks: &mut Vec<Leak>) {
        for thread in self.objects.threads() {
            let ours = match scope {
                Scope::Native => thread.kind() == ThreadKind::NativeSystem && scope.has(&thread.creator()),
                Scope::Image(range) => range.contains(&thread.start_address()),
            };
            if ours && !thread.has_ended() {
                let creator = thread.creator();
                let text = format!("thread {} ({}), by {}", thread.id(), thread.name(), creator.describe(self));
                leaks.push(Leak { rule: &NT_THREAD_LEAKED, text });
            }
        }
    }

    fn queue_leaks(&self, scope: &Scope, leaks: &mut Vec<Leak>) {
        for (address, set_by) in self.timers.set() {
            if scope.has(&set_by) {
                let text = format!("the timer at {address:#x}, by {}", set_by.describe(self));
                leaks.push(Leak { rule: &NT_TIMER_LEAKED, text });
            }
        }
        for (address, routine) in self.dpcs.queued() {
            let ours = match scope {
                Scope::Native => !self.images.contains(routine),
                Scope::Image(range) => range.contains(&routine),
            };
            if ours {
                leaks.push(Leak { rule: &NT_DPC_LEAKED, text: format!("the DPC at {address:#x}") });
            }
        }
    }

    fn memory_leaks(&self, scope: &Scope, leaks: &mut Vec<Leak>) {
        for object in self.memory.physical.objects() {
            let kind = object.kind();
            if matches!(kind, PageKind::Contiguous | PageKind::MdlPages) && scope.has(&object.site()) {
                let text = format!("{} pages ({kind:?}), by {}", object.pages(), object.site().describe(self));
                leaks.push(Leak { rule: &NT_PAGES_LEAKED, text });
            }
        }
        let mapping = |purpose: Purpose| {
            matches!(purpose, Purpose::MdlMapping(_) | Purpose::IoSpace | Purpose::MappingAddress(_))
        };
        for region in self.memory.regions.select(|region| mapping(region.purpose) && scope.has(&region.site)) {
            let text = format!("{region:?}, by {}", region.site.describe(self));
            leaks.push(Leak { rule: &NT_MAP_LEAKED, text });
        }
    }

    /// Unmaps a driver whose entry point was not called, or failed, or has been unloaded. What it left behind breaks a
    /// rule each; an image that a thread still runs in stays mapped.
    ///
    /// Returns whether it was unmapped.
    pub fn unload_image(&self, image: &Arc<Image>) -> bool {
        let range = image.base()..image.base() + image.size();
        let leaks = self.check_leaks(&Scope::Image(range));
        let in_use = [&NT_THREAD_LEAKED, &NT_TIMER_LEAKED, &NT_DPC_LEAKED];
        let busy = leaks.iter().any(|leak| in_use.iter().any(|rule| std::ptr::eq(*rule, leak.rule)));
        if busy || !self.images.remove(image) {
            return false;
        }
        image.mapped.unmap(self);
        true
    }
}

static LEAK_RULES: &[&Rule] = &[
    &NT_POOL_LEAKED,
    &NT_THREAD_LEAKED,
    &NT_TIMER_LEAKED,
    &NT_DPC_LEAKED,
    &NT_HANDLE_LEAKED,
    &NT_ETW_LEAKED,
    &NT_BUG_CHECK_LEAKED,
    &NT_LOOKASIDE_LEAKED,
    &NT_RESOLUTION_LEAKED,
    &NT_INT_LEAKED,
    &NT_PAGES_LEAKED,
    &NT_MDL_LEAKED,
    &NT_MAP_LEAKED,
];

#[cfg(test)]
mod tests {
    use crate::interrupt::{InterruptLine, Trigger};
    use crate::kernel::{Kernel, KernelConfig};
    use crate::object::Object;
    use crate::records::KTIMER;
    use crate::routines::DISPATCH_LEVEL;
    use crate::rules_nt::*;
    use crate::{Dpc, DpcDelivery, Event, shims};
    use std::sync::Arc;

    shims! {
        table ROUTINES;
        fn Service(_m, _object: usize, _context: usize) -> u8 {
            1
        }
    }

    #[test]
    fn everything_that_a_driver_can_leave_is_named() {
        let kernel = Kernel::new(KernelConfig { dpc_delivery: DpcDelivery::Inline, ..KernelConfig::collecting() });
        let _in = kernel.enter();
        let timer = Box::new(KTIMER::default());
        kernel.initialize_timer(&timer, false);
        let dpc = Dpc::new(&kernel, |_, _| ());
        let line = InterruptLine::new("test", Trigger::Message, 0);
        kernel.assign_interrupt(0x31, &line);
        let stop = Arc::new(Event::notification(false));
        kernel.raise_irql(DISPATCH_LEVEL);
        let _ = kernel.call_driver("DxgkDdiStartDevice", || {
            kernel.set_timer(&timer, -1_000_000_000, 0, None);
            kernel.insert_queue_dpc(dpc.as_kdpc(), 0, 0);
        });
        // The DPC stays queued while the level is raised; look for it now.
        let queued = kernel.check_native_leaks();
        assert!(queued.iter().any(|leak| std::ptr::eq(leak.rule, &NT_DPC_LEAKED)));
        kernel.lower_irql(0);
        let _ = kernel.call_driver("DxgkDdiStartDevice", || {
            kernel.open_handle(Object::Event(stop.clone()));
            kernel.register_etw([1; 16], 0, 0);
            assert!(kernel.register_bug_check_callback(0x1000, 0x2000, 1));
            assert!(kernel.paired.begin_lookaside(0x3000));
            kernel.set_timer_resolution(10_000, true);
            let request = crate::interrupt::ConnectRequest {
                vector: 0x31,
                level: 5,
                routine: ROUTINES[0].address.get(),
                context: 0,
            };
            assert!(kernel.connect_interrupt_object(&request).is_ok());
            kernel.allocate_pool(0x40, 10, 1);
            let (machine, stop) = (kernel.arc(), stop.clone());
            kernel.spawn_system_thread("left", move || _ = machine.wait_for_event(&stop, None));
        });
        let mut found: Vec<_> = kernel.check_native_leaks().iter().map(|leak| leak.rule.name).collect();
        found.sort_unstable();
        let mut expected = [
            NT_TIMER_LEAKED.name,
            NT_HANDLE_LEAKED.name,
            NT_ETW_LEAKED.name,
            NT_BUG_CHECK_LEAKED.name,
            NT_LOOKASIDE_LEAKED.name,
            NT_RESOLUTION_LEAKED.name,
            NT_INT_LEAKED.name,
            NT_POOL_LEAKED.name,
            NT_THREAD_LEAKED.name,
        ];
        expected.sort_unstable();
        assert_eq!(found, expected);
        kernel.cancel_timer(&timer);
        kernel.set_event(stop.as_kevent(), false);
    }
}
