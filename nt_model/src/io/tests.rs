use std::sync::Arc;
use std::sync::atomic::Ordering;

use iced_x86::code_asm::*;

use super::request::{ControlRequest, Transfer};
use super::{Driver, at};
use crate::image::LoadOptions;
use crate::image::tests::builder::DriverBuilder;
use crate::kernel::Kernel;
use crate::records::{KEVENT, status};
use crate::records_io::{DeviceObject, IRP, IRP_MJ_CREATE, IRP_MJ_INTERNAL_DEVICE_CONTROL, IRP_MJ_READ, IRP_MJ_WRITE};
use crate::rules_nt::{NT_DEVICE, NT_DRIVER_ENTRY, NT_IRP, NT_UNICODE_STRING, NT_WORK_ITEM};
use crate::{Event, shims};

/// displib's internal control code: FILE_DEVICE_VIDEO, function 0xF, METHOD_NEITHER.
const HANDSHAKE: u32 = 0x23_003F;

#[test]
fn displibs_handshake_gets_a_function_pointer() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    assert!(kernel.register_device("\\Device\\DxgKrnl", |request| {
        let expected = request.major == IRP_MJ_INTERNAL_DEVICE_CONTROL && request.code == HANDSHAKE;
        if expected && request.write_pointer(0x1234_5678) { status::SUCCESS } else { status::INVALID_DEVICE_REQUEST }
    }));
    assert!(!kernel.register_device("\\device\\dxgkrnl", |_| 0), "the name is taken");
    assert!(kernel.is_service_known("DXGKrnl"));
    let (file, device) = kernel.device_object_pointer("\\Device\\DxgKrnl").unwrap_or_default();
    let (mut function, mut iosb) = (0_usize, [0_u64; 2]);
    let event = Event::notification(false);
    let request = ControlRequest {
        code: HANDSHAKE,
        device,
        output: ((&raw mut function).expose_provenance(), 8),
        internal: true,
        event: core::ptr::from_ref::<KEVENT>(event.as_kevent()).expose_provenance(),
        iosb: (&raw mut iosb).expose_provenance(),
        ..ControlRequest::default()
    };
    let irp = kernel.build_control_request(&request).unwrap_or_default();
    assert_eq!(kernel.call_device(device, irp), status::SUCCESS);
    assert_eq!((function, iosb[0]), (0x1234_5678, 0));
    assert!(kernel.read_event(event.as_kevent()));
    assert_eq!(kernel.dereference_object(file), 0);
    assert!(!kernel.pool_outstanding().iter().any(|leak| leak.address == file), "the file object is gone");
    assert!(kernel.rules.violations().is_empty());
}

#[test]
fn an_unknown_name_is_not_found_and_a_link_leads_on() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    assert_eq!(kernel.device_object_pointer("\\Device\\Nothing"), Err(status::OBJECT_NAME_NOT_FOUND));
    assert!(kernel.register_device("\\Device\\Thing", |_| 0));
    assert_eq!(kernel.create_symbolic_link("\\??\\Thing", "\\Device\\Thing"), Ok(()));
    assert_eq!(kernel.create_symbolic_link("\\??\\thing", "\\Device\\Thing"), Err(status::OBJECT_NAME_COLLISION));
    assert_eq!(kernel.find_device("\\??\\thing"), kernel.find_device("\\Device\\Thing"));
    assert_eq!(kernel.delete_symbolic_link("\\??\\Thing"), Ok(()));
    assert!(kernel.find_device("\\??\\Thing").is_none());
}

/// A driver with one device, `\Device\Test`, whose control routine answers 42; it completes an IRP `completions` times.
fn test_driver(completions: usize) -> Vec<u8> {
    let imports = ["IoCreateDevice", "IoDeleteDevice", "IofCompleteRequest", "RtlInitUnicodeString"];
    let mut builder = DriverBuilder::new(&imports);
    let text: Vec<u8> = "\\Device\\Test\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let text = builder.data(&text);
    let name = builder.data(&[0; 16]);
    let device = builder.data(&[0; 8]);
    builder
        .code(|b| {
            let (mut dispatch, mut unload) = (b.asm.create_label(), b.asm.create_label());
            b.asm.push(rbx)?;
            b.asm.sub(rsp, 0x40)?;
            b.asm.mov(rbx, rcx)?;
            b.lea(rcx, name);
            b.lea(rdx, text);
            b.call("RtlInitUnicodeString");
            b.asm.mov(rcx, rbx)?;
            b.asm.mov(edx, 0x20)?;
            b.lea(r8, name);
            b.asm.mov(r9d, 0x22)?;
            b.asm.mov(qword_ptr(rsp + 0x20), 0)?;
            b.asm.mov(qword_ptr(rsp + 0x28), 0)?;
            b.lea(rax, device);
            b.asm.mov(qword_ptr(rsp + 0x30), rax)?;
            b.call("IoCreateDevice");
            b.asm.lea(rcx, ptr(dispatch))?;
            b.asm.mov(qword_ptr(rbx + 0x70 + 8 * 0xE), rcx)?;
            b.asm.lea(rcx, ptr(unload))?;
            b.asm.mov(qword_ptr(rbx + 0x68), rcx)?;
            b.asm.add(rsp, 0x40)?;
            b.asm.pop(rbx)?;
            b.asm.ret()?;

            b.asm.set_label(&mut dispatch)?;
            b.asm.push(rbx)?;
            b.asm.sub(rsp, 0x20)?;
            b.asm.mov(rbx, rdx)?;
            b.asm.mov(rax, qword_ptr(rbx + 0x18))?;
            b.asm.mov(dword_ptr(rax), 42)?;
            b.asm.mov(dword_ptr(rbx + 0x30), 0)?;
            b.asm.mov(qword_ptr(rbx + 0x38), 4)?;
            for _ in 0..completions {
                b.asm.mov(rcx, rbx)?;
                b.asm.xor(edx, edx)?;
                b.call("IofCompleteRequest");
            }
            b.asm.xor(eax, eax)?;
            b.asm.add(rsp, 0x20)?;
            b.asm.pop(rbx)?;
            b.asm.ret()?;

            b.asm.set_label(&mut unload)?;
            b.asm.sub(rsp, 0x28)?;
            b.asm.mov(rcx, qword_ptr(rcx + 8))?;
            b.call("IoDeleteDevice");
            b.asm.add(rsp, 0x28)?;
            b.asm.ret()
        })
        .build()
}

fn start(kernel: &Kernel, completions: usize) -> Arc<Driver> {
    let image = kernel.load_driver_bytes("test.sys", &test_driver(completions), &LoadOptions::default());
    let image = image.unwrap_or_else(|error| panic!("{error}"));
    kernel.start_driver(&image, "test").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_drivers_device_answers_requests() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let driver = start(&kernel, 1);
    let device = kernel.find_device("\\Device\\Test").unwrap_or_default();
    assert_eq!(driver.object().device_object.load(Ordering::Relaxed), device);
    assert_eq!(kernel.device_control(device, 0x22_2000, &[1, 2], 8), (status::SUCCESS, vec![42, 0, 0, 0]));
    assert_eq!(kernel.device_request(device, IRP_MJ_CREATE), status::INVALID_DEVICE_REQUEST);
    assert_eq!(kernel.unload_driver(&driver), Ok(()));
    assert!(kernel.find_device("\\Device\\Test").is_none());
    assert!(kernel.drivers().is_empty());
    assert!(kernel.rules.violations().is_empty(), "{:?}", kernel.rules.violations());
}

#[test]
fn a_transfer_has_the_buffer_that_the_device_wants() {
    // DO_BUFFERED_IO, DO_DIRECT_IO.
    const FLAGS: [u32; 3] = [0, 4, 0x10];
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let driver = start(&kernel, 1);
    let device = kernel.find_device("\\Device\\Test").unwrap_or_default();
    let data = kernel.allocate_pool_with_tag(0x200, 8, 0x7473_6554).unwrap_or_default();
    let left = kernel.pool_outstanding().len();
    for flags in FLAGS {
        at::<DeviceObject>(device).flags.store(flags, Ordering::Relaxed);
        for major in [IRP_MJ_READ, IRP_MJ_WRITE] {
            let transfer = Transfer { major, device, buffer: (data, 8), offset: 0x1_0000_0002, ..Transfer::default() };
            let address = kernel.build_transfer(&transfer).expect("an IRP");
            let irp: &IRP = at(address);
            let found = [&irp.user_buffer, &irp.system_buffer, &irp.mdl_address].map(|to| to.load(Ordering::Relaxed));
            assert_eq!(found.map(|to| to != 0), FLAGS.map(|other| other == flags));
            // The driver has no routine for it.
            assert_eq!(kernel.call_device(device, address), status::INVALID_DEVICE_REQUEST);
        }
    }
    assert_eq!(kernel.pool_outstanding().len(), left);
    assert!(kernel.rules.violations().is_empty());
    drop(driver);
    kernel.free_pool(data, None);
}

#[test]
fn completing_twice_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    start(&kernel, 2);
    let device = kernel.find_device("\\Device\\Test").unwrap_or_default();
    kernel.device_control(device, 0x22_2000, &[], 8);
    assert!(kernel.rules.was_broken(&NT_IRP));
}

#[test]
fn a_deleted_device_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    start(&kernel, 1);
    let device = kernel.find_device("\\Device\\Test").unwrap_or_default();
    kernel.delete_device(device);
    kernel.delete_device(device);
    assert!(kernel.rules.was_broken(&NT_DEVICE));
}

#[test]
fn a_device_left_at_unload_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let driver = start(&kernel, 1);
    driver.object().driver_unload.store(0, Ordering::Relaxed);
    assert_eq!(kernel.unload_driver(&driver), Ok(()));
    assert!(kernel.rules.was_broken(&NT_DRIVER_ENTRY));
}

#[test]
fn a_stack_of_devices_passes_a_request_down() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let driver = start(&kernel, 1);
    let lower = kernel.find_device("\\Device\\Test").unwrap_or_default();
    let upper = kernel.create_device(driver.address(), 0, "", 0x22, 0).unwrap_or_default();
    assert_eq!(kernel.attach_device(upper, lower), lower);
    let irp = kernel.allocate_irp(2).unwrap_or_default();
    let packet: &IRP = at(irp);
    assert_eq!((packet.stack_count.load(Ordering::Relaxed), packet.current_location.load(Ordering::Relaxed)), (2, 3));
    kernel.free_irp(irp);
    kernel.free_irp(irp);
    assert!(kernel.rules.was_broken(&NT_IRP), "freed twice");
    kernel.detach_device(lower);
    kernel.delete_device(upper);
}

shims! {
    table ROUTINES;
    fn SetEvent(m, _device: usize, context: usize) {
        m.set_event(at::<KEVENT>(context), false);
    }
}

#[test]
fn a_work_item_runs_on_a_worker() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let event = Event::synchronization(false);
    let context = core::ptr::from_ref::<KEVENT>(event.as_kevent()).expose_provenance();
    let item = kernel.allocate_work_item(0);
    for _ in 0..3 {
        kernel.queue_work_item(item, ROUTINES[0].address.get(), context, false);
        assert_eq!(kernel.wait_for_event(&event, None), status::SUCCESS);
    }
    kernel.free_work_item(item);
    assert!(kernel.rules.violations().is_empty());
    kernel.free_work_item(item);
    assert!(kernel.rules.was_broken(&NT_WORK_ITEM));
}

#[test]
fn a_malformed_name_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let string = crate::records::UnicodeString { length: 7, maximum_length: 4, buffer: core::ptr::null_mut() };
    let address = (&raw const string).expose_provenance();
    assert_eq!(crate::shims::io::name(&kernel, crate::shims::pointer(address)), "");
    assert!(kernel.rules.was_broken(&NT_UNICODE_STRING));
}
