//! Event tracing: providers that drivers register, and a sink that records what they write.
//!
//! A provider writes nothing until its enable callback says that somebody listens; [`Machine::enable_etw`] calls it, at
//! once for registered providers and at registration for later ones.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::callback;
use crate::cpu::Site;
use crate::kernel::Machine;
use crate::records::{status, status::NtStatus};
use crate::routines::{self, Routine};
use crate::rules::Details;
use crate::rules_nt::NT_ETW_HANDLE;
use crate::user::guard::try_user;

/// One event, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtwEvent {
    /// Provider.
    pub provider: [u8; 16],
    /// The process whose DLL wrote it; `None` for a driver.
    pub process: Option<u64>,
    /// `EVENT_DESCRIPTOR`: id (16 bits), version, channel, level, opcode, task (16 bits), keyword (64 bits).
    pub descriptor: [u8; 16],
    /// Data items in order: a TraceLogging event has provider metadata, event metadata, then fields.
    pub data: Vec<Vec<u8>>,
    /// Performance counter.
    pub time: u64,
    /// Thread that wrote it.
    pub thread: u64,
}

#[derive(Clone, Debug)]
struct Provider {
    id: [u8; 16],
    callback: usize,
    context: usize,
    /// The process whose DLL it is; `None` for a driver's.
    process: Option<u64>,
    /// Traits given by `EtwSetInformation`.
    traits: Vec<u8>,
    site: Site,
}

type Listener = Arc<dyn Fn(&EtwEvent) + Send + Sync>;

#[derive(Default)]
struct State {
    providers: HashMap<u64, Provider>,
    last: u64,
    events: Vec<EtwEvent>,
    /// Level and keywords, while somebody listens.
    enabled: Option<(u8, u64)>,
    listener: Option<Listener>,
}

/// Events kept.
const KEPT: usize = 100_000;

/// Event tracing of one machine.
#[derive(Default)]
pub(crate) struct Etw {
    state: Mutex<State>,
}

impl fmt::Debug for Etw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etw").finish_non_exhaustive()
    }
}

impl Etw {
    pub(crate) fn registered(&self) -> Vec<(u64, Site)> {
        let state = self.state.lock();
        let drivers = state.providers.iter().filter(|(_, provider)| provider.process.is_none());
        drivers.map(|(handle, provider)| (*handle, provider.site)).collect()
    }
}

impl Machine {
    /// Registers a provider. `callback`: the driver's `ETWENABLECALLBACK`, or 0. Returns its handle.
    ///
    /// IRQL: PASSIVE_LEVEL.
    #[doc(alias = "EtwRegister")]
    #[track_caller]
    pub fn register_etw(&self, id: [u8; 16], callback: usize, context: usize) -> u64 {
        let _service = self.service(&routines::ETW_REGISTER, [0, callback as u64, context as u64, 0]);
        self.add_provider(Provider { id, callback, context, process: None, traits: Vec::new(), site: Site::here() })
    }

    /// Registers a provider of the current process's.
    #[track_caller]
    pub(crate) fn register_user_etw(&self, id: [u8; 16], callback: usize, context: usize) -> u64 {
        let process = Some(self.current_process_id());
        self.add_provider(Provider { id, callback, context, process, traits: Vec::new(), site: Site::here() })
    }

    /// Adds it, and tells it at once who listens. Returns its handle.
    fn add_provider(&self, provider: Provider) -> u64 {
        let (handle, enabled) = {
            let mut state = self.etw.state.lock();
            state.last += 1;
            // Handles look like addresses on Windows.
            let handle = 0xFFFF_8000_0000_0000 | state.last << 4;
            state.providers.insert(handle, provider.clone());
            (handle, state.enabled)
        };
        if let Some((level, keywords)) = enabled {
            self.tell_provider(&provider, Some((level, keywords)));
        }
        handle
    }

    /// Removes a provider.
    ///
    /// IRQL: PASSIVE_LEVEL.
    #[doc(alias = "EtwUnregister")]
    #[track_caller]
    pub fn unregister_etw(&self, handle: u64) -> NtStatus {
        let _service = self.service(&routines::ETW_UNREGISTER, [handle]);
        let known = self.remove_etw(handle);
        if self.check_etw(known, handle, "unregistered") { status::SUCCESS } else { status::INVALID_HANDLE }
    }

    /// Removes a provider. Returns whether there was one.
    pub(crate) fn remove_etw(&self, handle: u64) -> bool {
        self.etw.state.lock().providers.remove(&handle).is_some()
    }

    /// Forgets what a process that has ended has registered.
    pub(crate) fn forget_etw_of(&self, process: u64) {
        self.etw.state.lock().providers.retain(|_, provider| provider.process != Some(process));
    }

    fn check_etw(&self, known: bool, handle: u64, what: &str) -> bool {
        self.rules.check(&NT_ETW_HANDLE, known, || {
            Details::new(format!("{handle:#x} is {what} but is no registration")).params([handle, 0, 0])
        })
    }

    /// Keeps the traits of a provider.
    ///
    /// IRQL: PASSIVE_LEVEL.
    #[doc(alias = "EtwSetInformation")]
    #[track_caller]
    pub fn set_etw_information(&self, handle: u64, class: u32, data: &[u8]) -> NtStatus {
        let _service = self.service(&routines::ETW_SET_INFORMATION, [handle, class.into(), 0, data.len() as u64]);
        let known = self.keep_etw_traits(handle, data.to_vec());
        if self.check_etw(known, handle, "set") { status::SUCCESS } else { status::INVALID_HANDLE }
    }

    /// Keeps the traits of a provider. Returns whether there is one.
    pub(crate) fn keep_etw_traits(&self, handle: u64, traits: Vec<u8>) -> bool {
        let mut state = self.etw.state.lock();
        state.providers.get_mut(&handle).map(|provider| provider.traits = traits).is_some()
    }

    /// Records an event.
    ///
    /// IRQL: any.
    #[doc(alias = "EtwWrite")]
    #[doc(alias = "EtwWriteTransfer")]
    #[track_caller]
    pub fn write_etw(
        &self,
        routine: &'static Routine,
        handle: u64,
        descriptor: [u8; 16],
        data: Vec<Vec<u8>>,
    ) -> NtStatus {
        let _service = self.service(routine, [handle, 0, 0, 0, data.len() as u64, 0]);
        let known = self.record_etw(handle, descriptor, data);
        if self.check_etw(known, handle, "written to") { status::SUCCESS } else { status::INVALID_HANDLE }
    }

    /// Records an event. Returns whether the provider is registered.
    pub(crate) fn record_etw(&self, handle: u64, descriptor: [u8; 16], data: Vec<Vec<u8>>) -> bool {
        let provider = self.etw.state.lock().providers.get(&handle).map(|provider| (provider.id, provider.process));
        let Some((provider, process)) = provider else { return false };
        let event = EtwEvent {
            provider,
            process,
            descriptor,
            data,
            time: self.query_performance_counter(),
            thread: self.current_thread_id(),
        };
        let listener = {
            let mut state = self.etw.state.lock();
            if state.events.len() < KEPT {
                state.events.push(event.clone());
            }
            state.listener.clone()
        };
        if let Some(listener) = listener {
            listener(&event);
        }
        true
    }

    /// Begins to listen: every provider's enable callback is called with `level` and `keywords`.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub fn enable_etw(&self, level: u8, keywords: u64) {
        self.switch_etw(Some((level, keywords)));
    }

    /// Stops listening.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub fn disable_etw(&self) {
        self.switch_etw(None);
    }

    fn switch_etw(&self, enabled: Option<(u8, u64)>) {
        let providers: Vec<_> = {
            let mut state = self.etw.state.lock();
            state.enabled = enabled;
            state.providers.values().cloned().collect()
        };
        for provider in providers {
            self.tell_provider(&provider, enabled);
        }
    }

    /// Calls `ETWENABLECALLBACK(SourceId, ControlCode, Level, MatchAnyKeyword, MatchAllKeyword, FilterData, Context)`.
    fn tell_provider(&self, provider: &Provider, enabled: Option<(u8, u64)>) {
        if provider.callback == 0 {
            return;
        }
        let (level, keywords) = enabled.unwrap_or_default();
        let arguments = [
            provider.id.as_ptr().expose_provenance(),
            usize::from(enabled.is_some()),
            level.into(),
            // CAST: keywords are 64 bits, as a register is.
            keywords as usize,
            0,
            0,
            provider.context,
        ];
        let Some(process) = provider.process else {
            let _ = self.call_driver("ETW enable callback", || callback::invoke(provider.callback, arguments));
            return;
        };
        if let Some(process) = self.process(process) {
            let _in = self.enter_process(&process);
            // One that crashes is its process's affair.
            let _ = try_user(|| callback::invoke(provider.callback, arguments));
        }
    }

    /// Called for every event.
    pub fn on_etw_event(&self, listener: impl Fn(&EtwEvent) + Send + Sync + 'static) {
        self.etw.state.lock().listener = Some(Arc::new(listener));
    }

    /// The recorded events, which are then forgotten.
    pub fn take_etw_events(&self) -> Vec<EtwEvent> {
        std::mem::take(&mut self.etw.state.lock().events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

    #[test]
    fn events_are_recorded_with_their_provider() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        let handle = kernel.register_etw([7; 16], 0, 0);
        assert_eq!(kernel.write_etw(&routines::ETW_WRITE, handle, [1; 16], vec![vec![1, 2]]), status::SUCCESS);
        let events = kernel.take_etw_events();
        assert_eq!((events.len(), events[0].provider, events[0].data[0].as_slice()), (1, [7; 16], &[1, 2][..]));
        assert_eq!(kernel.unregister_etw(handle), status::SUCCESS);
        assert!(kernel.rules.violations().is_empty());
    }

    #[test]
    fn a_stale_handle_is_caught() {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        kernel.unregister_etw(5);
        assert!(kernel.rules.was_broken(&NT_ETW_HANDLE));
    }
}
