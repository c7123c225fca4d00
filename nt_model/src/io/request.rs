//! IRPs: built, sent down, completed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{DeviceRecord, allocate, at};
use crate::callback;
use crate::dispatcher::Event;
use crate::kernel::Machine;
use crate::memory::{LockOperation, Mdl};
use crate::records::{KEVENT, MDL, UnicodeString, status, status::NtStatus};
use crate::records_io::{
    DeviceObject, IRP, IRP_MJ_DEVICE_CONTROL, IRP_MJ_FLUSH_BUFFERS, IRP_MJ_INTERNAL_DEVICE_CONTROL, IRP_MJ_PNP,
    IRP_MJ_READ, IRP_MJ_SHUTDOWN, IRP_MJ_WRITE, IoStackLocation, SharedUnicodeString,
};
use crate::routines;
use crate::rules::Details;
use crate::rules_nt::NT_IRP;
use crate::shim;
use crate::shims;

const IRP_TAG: u32 = u32::from_le_bytes(*b"Irp ");
/// `STATUS_MORE_PROCESSING_REQUIRED`.
// CAST: the signed reading of the published number.
const MORE_PROCESSING_REQUIRED: NtStatus = 0xC000_0016_u32 as i32;
/// `DO_BUFFERED_IO`.
const DO_BUFFERED_IO: u32 = 4;
/// `DO_DIRECT_IO`.
const DO_DIRECT_IO: u32 = 0x10;
const STACK: usize = size_of::<IoStackLocation>();

/// What is known of an IRP.
#[derive(Clone, Debug)]
pub(crate) struct IrpRecord {
    /// Made by `IoBuildDeviceIoControlRequest` or `IoBuildSynchronousFsdRequest`: completion frees it, copies the
    /// output back and sets the event.
    built: bool,
    completed: bool,
    /// Where buffered output goes, and how much of it.
    output: (usize, usize),
    /// Status at completion, for whoever waits natively.
    done: Option<Arc<Completion>>,
}

#[derive(Debug)]
struct Completion {
    event: Event,
    result: parking_lot::Mutex<(NtStatus, usize)>,
}

/// A request to a native device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoRequest {
    /// `IRP_MJ_*`.
    pub major: u8,
    /// Control code, for device control.
    pub code: u32,
    /// Address and length of the input.
    pub input: (usize, usize),
    /// Address and length of the output. With METHOD_NEITHER this is what the caller passed, for instance the address
    /// of a function pointer to fill in.
    pub output: (usize, usize),
}

impl IoRequest {
    /// Stores a pointer-sized result in the output. False when it has no room for it.
    pub fn write_pointer(&self, value: usize) -> bool {
        let fits = self.output.0 != 0 && self.output.1 >= size_of::<usize>();
        if fits {
            shim::write_bytes(self.output.0, &value.to_le_bytes());
        }
        fits
    }

    /// Copies the input.
    pub fn read_input(&self) -> Vec<u8> {
        shim::read_bytes(self.input.0, self.input.1)
    }

    /// Stores a result in the output, cut to its room. Returns how much was stored.
    pub fn write_output(&self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(self.output.1)];
        shim::write_bytes(self.output.0, bytes);
        bytes.len()
    }
}

/// A `UNICODE_STRING` over characters that outlive it.
pub(super) struct NamedString(Box<UnicodeString>);

impl NamedString {
    pub(super) fn new(units: &[u16]) -> Self {
        // CAST: names are short.
        let length = (units.len() * 2) as u16;
        Self(Box::new(UnicodeString { length, maximum_length: length, buffer: units.as_ptr().cast_mut() }))
    }

    pub(super) fn address(&self) -> usize {
        core::ptr::from_ref(&*self.0).expose_provenance()
    }
}

/// Points a string of a record to characters.
pub(super) fn set_string(string: &SharedUnicodeString, units: &[u16]) {
    // CAST: names are short.
    let length = (units.len() * 2) as u16;
    string.length.store(length, Ordering::Relaxed);
    string.maximum_length.store(length, Ordering::Relaxed);
    string.buffer.store(units.as_ptr().expose_provenance(), Ordering::Relaxed);
}

/// A device control request, as `IoBuildDeviceIoControlRequest` takes it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ControlRequest {
    pub(crate) code: u32,
    pub(crate) device: usize,
    pub(crate) input: (usize, usize),
    pub(crate) output: (usize, usize),
    pub(crate) internal: bool,
    pub(crate) event: usize,
    pub(crate) iosb: usize,
}

/// A request to read, to write or to have done with that, as `IoBuildSynchronousFsdRequest` takes it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transfer {
    pub(crate) major: u8,
    pub(crate) device: usize,
    pub(crate) buffer: (usize, usize),
    pub(crate) offset: i64,
    pub(crate) event: usize,
    pub(crate) iosb: usize,
}

impl Machine {
    /// An IRP with `locations` stack locations, zeroed. Returns its address.
    fn new_irp(&self, locations: i8, record: IrpRecord) -> Option<usize> {
        // CAST: at most 127.
        let count = usize::from(locations.unsigned_abs());
        let bytes = size_of::<IRP>() + STACK * count;
        let address = allocate(&self.memory, self, bytes, IRP_TAG, "an IRP").ok()?;
        let irp: &IRP = at(address);
        irp.kind.store(6, Ordering::Relaxed);
        // CAST: at most 127 locations.
        irp.size.store(bytes as u16, Ordering::Relaxed);
        irp.stack_count.store(locations, Ordering::Relaxed);
        irp.current_location.store(locations.saturating_add(1), Ordering::Relaxed);
        irp.current_stack_location.store(address + size_of::<IRP>() + STACK * count, Ordering::Relaxed);
        irp.thread.store(self.with_current_thread(crate::thread::Thread::address), Ordering::Relaxed);
        self.io.irps.lock().insert(address, record);
        Some(address)
    }

    /// `IoAllocateIrp`.
    #[track_caller]
    pub(crate) fn allocate_irp(&self, locations: i8) -> Option<usize> {
        // CAST: printed only.
        let _service = self.service(&routines::IO_ALLOCATE_IRP, [locations as u64]);
        if self.memory.must_fail() {
            return None;
        }
        self.new_irp(locations, record(false, (0, 0)))
    }

    /// `IoFreeIrp`.
    #[track_caller]
    pub(crate) fn free_irp(&self, irp: usize) {
        let _service = self.service(&routines::IO_FREE_IRP, [irp as u64]);
        let known = self.io.irps.lock().remove(&irp).is_some();
        if self.rules.check(&NT_IRP, known, || gone(irp, "freed")) {
            self.release_pool(irp);
        }
    }

    /// Takes an IRP back that could not be built whole.
    fn drop_irp(&self, irp: usize) {
        self.io.irps.lock().remove(&irp);
        self.release_pool(irp);
    }

    /// `IoBuildDeviceIoControlRequest`. The IRP is freed by its completion.
    #[track_caller]
    pub(crate) fn build_control_request(&self, request: &ControlRequest) -> Option<usize> {
        let arguments = [request.code.into(), request.device as u64, request.input.0 as u64, request.input.1 as u64];
        let _service = self.service(&routines::IO_BUILD_DEVICE_IO_CONTROL_REQUEST, arguments);
        if !self.check_device(request.device) || self.memory.must_fail() {
            return None;
        }
        let locations = at::<DeviceObject>(request.device).stack_size.load(Ordering::Relaxed);
        let address = self.new_irp(locations, record(true, (0, 0)))?;
        let irp: &IRP = at(address);
        irp.user_event.store(request.event, Ordering::Relaxed);
        irp.user_iosb.store(request.iosb, Ordering::Relaxed);
        let next = next_location(irp);
        let major = if request.internal { IRP_MJ_INTERNAL_DEVICE_CONTROL } else { IRP_MJ_DEVICE_CONTROL };
        next.major_function.store(major, Ordering::Relaxed);
        next.control_code.store(request.code, Ordering::Relaxed);
        // CAST: lengths of device control are 32 bits.
        next.input_length.store(request.input.1 as u32, Ordering::Relaxed);
        next.output_length.store(request.output.1 as u32, Ordering::Relaxed);
        // The transfer method is in the control code's low bits; 3 is METHOD_NEITHER, the others buffer the input.
        if request.code & 3 == 3 {
            next.type3_input_buffer.store(request.input.0, Ordering::Relaxed);
            irp.user_buffer.store(request.output.0, Ordering::Relaxed);
            return Some(address);
        }
        let bytes = request.input.1.max(request.output.1);
        if bytes != 0 {
            let Ok(buffer) = allocate(&self.memory, self, bytes, IRP_TAG, "a system buffer") else {
                self.drop_irp(address);
                return None;
            };
            shim::write_bytes(buffer, &shim::read_bytes(request.input.0, request.input.1));
            irp.system_buffer.store(buffer, Ordering::Relaxed);
            if let Some(record) = self.io.irps.lock().get_mut(&address) {
                record.output = request.output;
            }
        }
        Some(address)
    }

    /// `IoBuildSynchronousFsdRequest`. The IRP is freed by its completion. `None` for another function than the five
    /// of the page, too.
    ///
    /// Source: DDI IoBuildSynchronousFsdRequest; *Methods for accessing data buffers*.
    #[track_caller]
    pub(crate) fn build_transfer(&self, request: &Transfer) -> Option<usize> {
        let arguments = [request.major.into(), request.device as u64, request.buffer.0 as u64, request.buffer.1 as u64];
        let _service = self.service(&routines::IO_BUILD_SYNCHRONOUS_FSD_REQUEST, arguments);
        let transfers = matches!(request.major, IRP_MJ_READ | IRP_MJ_WRITE);
        let known = transfers || matches!(request.major, IRP_MJ_FLUSH_BUFFERS | IRP_MJ_SHUTDOWN | IRP_MJ_PNP);
        if !known || !self.check_device(request.device) || self.memory.must_fail() {
            return None;
        }
        let device: &DeviceObject = at(request.device);
        let address = self.new_irp(device.stack_size.load(Ordering::Relaxed), record(true, (0, 0)))?;
        let irp: &IRP = at(address);
        irp.user_event.store(request.event, Ordering::Relaxed);
        irp.user_iosb.store(request.iosb, Ordering::Relaxed);
        let next = next_location(irp);
        next.major_function.store(request.major, Ordering::Relaxed);
        if !transfers {
            return Some(address);
        }
        let (buffer, bytes) = request.buffer;
        // CAST: the page's length is 32 bits, and the offset is stored as its halves.
        next.output_length.store(bytes as u32, Ordering::Relaxed);
        next.control_code.store(request.offset as u32, Ordering::Relaxed);
        next.offset_high.store((request.offset >> 32) as u32, Ordering::Relaxed);
        let flags = device.flags.load(Ordering::Relaxed);
        let read = request.major == IRP_MJ_READ;
        if bytes == 0 || flags & (DO_BUFFERED_IO | DO_DIRECT_IO) == 0 {
            irp.user_buffer.store(buffer, Ordering::Relaxed);
        } else if flags & DO_BUFFERED_IO != 0 {
            let Ok(system) = allocate(&self.memory, self, bytes, IRP_TAG, "a system buffer") else {
                self.drop_irp(address);
                return None;
            };
            if !read {
                shim::write_bytes(system, &shim::read_bytes(buffer, bytes));
            }
            irp.system_buffer.store(system, Ordering::Relaxed);
            if let Some(record) = self.io.irps.lock().get_mut(&address).filter(|_| read) {
                record.output = request.buffer;
            }
        } else {
            let Some(mdl) = self.allocate_mdl(buffer, bytes) else {
                self.drop_irp(address);
                return None;
            };
            let operation = if read { LockOperation::Write } else { LockOperation::Read };
            self.probe_and_lock(mdl, false, operation);
            irp.mdl_address.store(mdl.address(), Ordering::Relaxed);
        }
        Some(address)
    }

    /// Sends an IRP to a device: the next stack location becomes the current one, the driver's dispatch routine is
    /// called.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "IofCallDriver")]
    #[track_caller]
    pub fn call_device(&self, device: usize, irp: usize) -> NtStatus {
        let _service = self.service(&routines::IOF_CALL_DRIVER, [device as u64, irp as u64]);
        let Some(target) = self.check_device(device).then(|| self.io.devices.lock().get(&device).cloned()).flatten()
        else {
            return status::NO_SUCH_DEVICE;
        };
        let live = self.io.irps.lock().get(&irp).is_some_and(|record| !record.completed);
        if !self.rules.check(&NT_IRP, live, || gone(irp, "sent")) {
            return status::INVALID_PARAMETER;
        }
        let packet: &IRP = at(irp);
        let room = packet.current_location.load(Ordering::Relaxed) > 1;
        let text =
            || Details::new(format!("the IRP at {irp:#x} has no stack location left")).params([irp as u64, 0, 0]);
        if !self.rules.check(&NT_IRP, room, text) {
            return status::INVALID_PARAMETER;
        }
        packet.current_location.fetch_sub(1, Ordering::Relaxed);
        packet.current_stack_location.fetch_sub(STACK, Ordering::Relaxed);
        let location: &IoStackLocation = at(packet.current_stack_location.load(Ordering::Relaxed));
        location.device_object.store(device, Ordering::Relaxed);
        let major = location.major_function.load(Ordering::Relaxed);
        match &target.handler {
            Some(handler) => self.call_native(handler, packet, location, irp),
            None => self.dispatch(&target, major, device, irp),
        }
    }

    fn call_native(&self, handler: &super::Handler, packet: &IRP, location: &IoStackLocation, irp: usize) -> NtStatus {
        let major = location.major_function.load(Ordering::Relaxed);
        if matches!(major, IRP_MJ_READ | IRP_MJ_WRITE) {
            // A native device has neither flag: the buffer is the caller's.
            let bytes = location.output_length.load(Ordering::Relaxed) as usize;
            let buffer = (packet.user_buffer.load(Ordering::Relaxed), bytes);
            let (input, output) = if major == IRP_MJ_WRITE { (buffer, (0, 0)) } else { ((0, 0), buffer) };
            let result = handler(&IoRequest { major, code: 0, input, output });
            packet.status.store(result, Ordering::Relaxed);
            packet.information.store(if result >= 0 { bytes } else { 0 }, Ordering::Relaxed);
            self.finish_irp(irp);
            return result;
        }
        let code = location.control_code.load(Ordering::Relaxed);
        let lengths = (
            location.input_length.load(Ordering::Relaxed) as usize,
            location.output_length.load(Ordering::Relaxed) as usize,
        );
        let (input, output) = if code & 3 == 3 {
            (location.type3_input_buffer.load(Ordering::Relaxed), packet.user_buffer.load(Ordering::Relaxed))
        } else {
            let buffer = packet.system_buffer.load(Ordering::Relaxed);
            (buffer, buffer)
        };
        let request = IoRequest { major, code, input: (input, lengths.0), output: (output, lengths.1) };
        let result = handler(&request);
        packet.status.store(result, Ordering::Relaxed);
        if result >= 0 {
            packet.information.store(lengths.1, Ordering::Relaxed);
        }
        self.finish_irp(irp);
        result
    }

    fn dispatch(&self, target: &DeviceRecord, major: u8, device: usize, irp: usize) -> NtStatus {
        let Some(driver) = self.driver_at(target.driver) else { return status::NO_SUCH_DEVICE };
        let Some(routine) = driver.object().major_function.get(usize::from(major)) else {
            return status::INVALID_DEVICE_REQUEST;
        };
        let routine = routine.load(Ordering::Relaxed);
        let result = self.call_driver("dispatch routine", || callback::invoke(routine, [device, irp]));
        // CAST: an NTSTATUS is the low half of the return register.
        result.map_or(status::SYSTEM_SHUTDOWN, |status| status as NtStatus)
    }

    /// Completes an IRP: completion routines from the bottom up, then the originator.
    ///
    /// IRQL: at most DISPATCH_LEVEL.
    #[doc(alias = "IofCompleteRequest")]
    #[track_caller]
    pub fn complete_request(&self, irp: usize) {
        let _service = self.service(&routines::IOF_COMPLETE_REQUEST, [irp as u64, 0]);
        self.finish_irp(irp);
    }

    fn finish_irp(&self, irp: usize) {
        let fresh = self.io.irps.lock().get(&irp).is_some_and(|record| !record.completed);
        if !self.rules.check(&NT_IRP, fresh, || gone(irp, "completed")) {
            return;
        }
        let packet: &IRP = at(irp);
        let result = packet.status.load(Ordering::Relaxed);
        let text = || Details::new(format!("the IRP at {irp:#x} is completed with STATUS_PENDING"));
        self.rules.check(&NT_IRP, result != status::PENDING, text);
        while packet.current_location.load(Ordering::Relaxed) <= packet.stack_count.load(Ordering::Relaxed) {
            let location: &IoStackLocation = at(packet.current_stack_location.load(Ordering::Relaxed));
            packet.current_location.fetch_add(1, Ordering::Relaxed);
            packet.current_stack_location.fetch_add(STACK, Ordering::Relaxed);
            let routine = location.completion_routine.swap(0, Ordering::Relaxed);
            // SL_INVOKE_ON_SUCCESS, SL_INVOKE_ON_ERROR.
            let wanted = if result >= 0 { 0x40 } else { 0x80 };
            if routine == 0 || location.control.load(Ordering::Relaxed) & wanted == 0 {
                continue;
            }
            let above: usize =
                if packet.current_location.load(Ordering::Relaxed) <= packet.stack_count.load(Ordering::Relaxed) {
                    let above: &IoStackLocation = at(packet.current_stack_location.load(Ordering::Relaxed));
                    above.device_object.load(Ordering::Relaxed)
                } else {
                    0
                };
            let arguments = [above, irp, location.context.load(Ordering::Relaxed)];
            let answer = self.call_driver("completion routine", || callback::invoke(routine, arguments));
            // CAST: an NTSTATUS is the low half of the return register.
            if answer.is_ok_and(|answer| answer as NtStatus == MORE_PROCESSING_REQUIRED) {
                return;
            }
        }
        self.tell_originator(irp, packet);
    }

    fn tell_originator(&self, irp: usize, packet: &IRP) {
        let record = {
            let mut irps = self.io.irps.lock();
            let Some(record) = irps.get_mut(&irp) else { return };
            record.completed = true;
            record.clone()
        };
        let result = packet.status.load(Ordering::Relaxed);
        let information = packet.information.load(Ordering::Relaxed);
        let buffer = packet.system_buffer.load(Ordering::Relaxed);
        if buffer != 0 && record.output.0 != 0 && result >= 0 {
            let bytes = information.min(record.output.1);
            shim::write_bytes(record.output.0, &shim::read_bytes(buffer, bytes));
        }
        let iosb = packet.user_iosb.load(Ordering::Relaxed);
        if iosb != 0 {
            // CAST: the status as its 32 bits, in a pointer-sized union.
            shim::write_bytes(iosb, &u64::from(result as u32).to_le_bytes());
            shim::write_bytes(iosb + 8, &information.to_le_bytes());
        }
        let event = packet.user_event.load(Ordering::Relaxed);
        if record.built {
            if let mdl @ 1.. = packet.mdl_address.load(Ordering::Relaxed) {
                let mdl = Mdl::of(at::<MDL>(mdl));
                self.unlock_pages(mdl);
                self.free_mdl(mdl);
            }
            if buffer != 0 {
                self.release_pool(buffer);
            }
            self.drop_irp(irp);
        }
        if event != 0 {
            self.signal_object(&at::<KEVENT>(event).header, 1);
        }
        if let Some(done) = &record.done {
            *done.result.lock() = (result, information);
            self.signal_object(&done.event.as_kevent().header, 1);
        }
    }

    /// Sends a request of the host to a device, as a user-mode caller would: device control with `input`, and room for
    /// `output_bytes` of output. Waits for completion. Returns status and output.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub fn device_control(&self, device: usize, code: u32, input: &[u8], output_bytes: usize) -> (NtStatus, Vec<u8>) {
        let mut output = vec![0_u8; output_bytes];
        let request = ControlRequest {
            code,
            device,
            input: (input.as_ptr().expose_provenance(), input.len()),
            output: (output.as_mut_ptr().expose_provenance(), output_bytes),
            ..ControlRequest::default()
        };
        let Some(irp) = self.build_control_request(&request) else {
            return (status::INSUFFICIENT_RESOURCES, Vec::new());
        };
        let (result, information) = self.send_and_wait(device, irp);
        output.truncate(information);
        (result, output)
    }

    /// Sends a request without parameters: `IRP_MJ_CREATE`, `IRP_MJ_CLEANUP`, `IRP_MJ_CLOSE`. Waits for completion.
    ///
    /// IRQL: PASSIVE_LEVEL.
    pub fn device_request(&self, device: usize, major: u8) -> NtStatus {
        if !self.check_device(device) {
            return status::NO_SUCH_DEVICE;
        }
        let locations = at::<DeviceObject>(device).stack_size.load(Ordering::Relaxed);
        let Some(irp) = self.new_irp(locations, record(true, (0, 0))) else { return status::INSUFFICIENT_RESOURCES };
        next_location(at(irp)).major_function.store(major, Ordering::Relaxed);
        self.send_and_wait(device, irp).0
    }

    fn send_and_wait(&self, device: usize, irp: usize) -> (NtStatus, usize) {
        let done = Arc::new(Completion { event: Event::notification(false), result: parking_lot::Mutex::default() });
        if let Some(record) = self.io.irps.lock().get_mut(&irp) {
            record.done = Some(done.clone());
        }
        let sent = self.call_device(device, irp);
        if sent == status::PENDING || sent >= 0 {
            self.wait_for_event(&done.event, None);
        }
        let result = *done.result.lock();
        if self.rules.is_stopped() { (status::SYSTEM_SHUTDOWN, 0) } else { result }
    }
}

fn record(built: bool, output: (usize, usize)) -> IrpRecord {
    IrpRecord { built, completed: false, output, done: None }
}

fn next_location(irp: &IRP) -> &'static IoStackLocation {
    at(irp.current_stack_location.load(Ordering::Relaxed) - STACK)
}

fn gone(irp: usize, what: &str) -> Details {
    Details::new(format!("the IRP at {irp:#x} is {what} but does not exist or is completed already"))
        .params([irp as u64, 0, 0])
}

/// Completes an IRP that a driver has no routine for.
pub(crate) fn refuse(machine: &Machine, irp: usize) -> NtStatus {
    let pointer: crate::shim::In<IRP> = shims::pointer(irp);
    let packet = pointer.get();
    packet.status.store(status::INVALID_DEVICE_REQUEST, Ordering::Relaxed);
    packet.information.store(0, Ordering::Relaxed);
    machine.complete_request(irp);
    status::INVALID_DEVICE_REQUEST
}
