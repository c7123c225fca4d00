//! Code of an image at work: services, faults, the stack, registers.

use std::sync::Arc;

use iced_x86::code_asm::*;

use super::builder::DriverBuilder;
use super::load;
use crate::driver::Abandoned;
use crate::dump::Moment;
use crate::io::StartError;
use crate::kernel::{Kernel, KernelConfig};
use crate::rules::{Caller, Policy};
use crate::rules_nt::*;

type Asm = Result<(), iced_x86::IcedError>;

fn driver(imports: &[&str], code: impl FnOnce(&mut DriverBuilder) -> Asm) -> Vec<u8> {
    DriverBuilder::new(imports)
        .code(|b| {
            b.asm.push(rbx)?;
            b.asm.sub(rsp, 0x40)?;
            code(b)?;
            b.asm.add(rsp, 0x40)?;
            b.asm.pop(rbx)?;
            b.asm.ret()
        })
        .build()
}

fn start(kernel: &Kernel, file: &[u8]) -> Result<Arc<crate::io::Driver>, StartError> {
    let image = load(kernel, file).unwrap_or_else(|error| panic!("{error}"));
    kernel.start_driver(&image, "test")
}

/// Runs a driver that must be taken out of its entry point; returns the name of the rule and the address in the image.
fn stops_with(file: &[u8]) -> (&'static str, Option<u64>) {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    assert_eq!(start(&kernel, file).err(), Some(StartError::Abandoned(Abandoned)));
    let violation = kernel.rules.stopped().cloned().unwrap_or_else(|| panic!("stopped"));
    let rva = match violation.context.call.map(|call| call.caller) {
        Some(Caller::Image { rva, .. }) => Some(rva),
        _ => None,
    };
    (violation.rule.name, rva)
}

#[test]
fn variadic_printing_reaches_the_log() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let file = driver(&["DbgPrint", "DbgPrintEx"], |b| {
        let format = b.data(b"%d %s %I64x %u %c|\n\0");
        let text = b.data(b"text\0");
        b.lea(rcx, format);
        b.asm.mov(edx, -5)?;
        b.lea(r8, text);
        b.asm.mov(r9, 0x1_0000_0001_u64)?;
        b.asm.mov(qword_ptr(rsp + 0x20), 7)?;
        b.asm.mov(qword_ptr(rsp + 0x28), 65)?;
        b.call("DbgPrint");
        let format = b.data(b"ex %d\0");
        b.asm.mov(ecx, 77)?;
        b.asm.xor(edx, edx)?;
        b.lea(r8, format);
        b.asm.mov(r9d, 9)?;
        b.call("DbgPrintEx");
        b.asm.xor(eax, eax)
    });
    assert!(start(&kernel, &file).is_ok());
    assert_eq!(kernel.debug_messages(), ["-5 text 100000001 7 A|", "ex 9"]);
}

#[test]
fn a_service_keeps_the_registers_that_it_must() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let file = driver(&["KeSetEvent", "KeInitializeEvent"], |b| {
        let event = b.data(&[0; 0x18]);
        b.asm.mov(rbx, 0x1111_u64)?;
        b.asm.mov(rdi, 0x2222_u64)?;
        b.asm.mov(rsi, 0x3333_u64)?;
        b.asm.mov(r15, 0x4444_u64)?;
        b.asm.movq(xmm6, rbx)?;
        b.asm.movq(xmm15, rdi)?;
        b.lea(rcx, event);
        b.asm.xor(edx, edx)?;
        b.asm.xor(r8d, r8d)?;
        b.call("KeInitializeEvent");
        b.lea(rcx, event);
        b.asm.xor(edx, edx)?;
        b.asm.xor(r8d, r8d)?;
        b.call("KeSetEvent");
        b.asm.add(rbx, rdi)?;
        b.asm.add(rbx, rsi)?;
        b.asm.add(rbx, r15)?;
        b.asm.movq(rax, xmm6)?;
        b.asm.add(rbx, rax)?;
        b.asm.movq(rax, xmm15)?;
        b.asm.add(rax, rbx)?;
        // 0x1111 + 0x2222 + 0x3333 + 0x4444 + 0x1111 + 0x2222.
        b.asm.sub(eax, 0xDDDD)?;
        b.asm.neg(eax)
    });
    assert!(start(&kernel, &file).is_ok());
    assert!(kernel.rules.violations().is_empty());
}

#[test]
fn a_null_pointer_is_the_drivers_broken_rule() {
    let file = driver(&[], |b| {
        b.asm.xor(eax, eax)?;
        b.asm.mov(dword_ptr(rax + 0x20), 1)
    });
    assert_eq!(stops_with(&file).0, NT_ACCESS.name);
}

/// The registers of a dump are those of the very instruction.
#[test]
fn a_fault_leaves_a_dump_with_its_registers() {
    let kernel = Kernel::new(KernelConfig { policy: Policy::Collect, ..KernelConfig::default() });
    let kept = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let keep = kept.clone();
    kernel.keep_dumps(&[Moment::Broken], move |moment, dump| keep.lock().push((moment, dump)));
    let _in = kernel.enter();
    let file = driver(&[], |b| {
        b.asm.mov(rbx, 0x1111_2222_3333_4444_u64)?;
        b.asm.mov(r15, 0x5555_u64)?;
        b.asm.xor(eax, eax)?;
        b.asm.mov(dword_ptr(rax + 0x20), 1)
    });
    let _refused = start(&kernel, &file);
    let kept = kept.lock();
    let [(Moment::Broken, dump)] = &kept[..] else { panic!("{kept:?}") };
    let [thread] = dump.threads() else { panic!("{:?}", dump.threads()) };
    let registers = thread.registers;
    assert!(kernel.images.contains(registers.rip as usize), "{registers:x?}");
    // rax, rbx and r15.
    let general = [0, 3, 15].map(|number| registers.general[number]);
    assert_eq!(general, [0, 0x1111_2222_3333_4444, 0x5555]);
    assert!(dump.comment().contains("NT-ACCESS"), "{}", dump.comment());
    assert_eq!(dump.left_out(), 0);
}

#[test]
fn a_store_to_code_is_caught() {
    let file = driver(&[], |b| {
        b.lea_text(rax);
        b.asm.mov(byte_ptr(rax), 0)
    });
    assert_eq!(stops_with(&file).0, NT_ACCESS.name);
}

#[test]
fn a_jump_into_nothing_is_caught() {
    let file = driver(&[], |b| {
        b.asm.mov(eax, 0x10)?;
        b.asm.call(rax)
    });
    assert_eq!(stops_with(&file).0, NT_ACCESS.name);
}

#[test]
fn traps_and_fast_failures_are_caught() {
    assert_eq!(stops_with(&driver(&[], |b| b.asm.ud2())).0, NT_EXCEPTION.name);
    assert_eq!(stops_with(&driver(&[], |b| b.asm.int3())).0, NT_EXCEPTION.name);
    let fast_fail = driver(&[], |b| {
        b.asm.mov(ecx, 5)?;
        b.asm.int(0x29)
    });
    assert_eq!(stops_with(&fast_fail).0, NT_ACCESS.name);
    let divide = driver(&[], |b| {
        b.asm.xor(ecx, ecx)?;
        b.asm.xor(edx, edx)?;
        b.asm.div(ecx)
    });
    assert_eq!(stops_with(&divide).0, NT_EXCEPTION.name);
    assert_eq!(stops_with(&driver(&[], |b| b.asm.cli())).0, NT_ACCESS.name);
}

/// What a fault says for which the processor names no address.
#[test]
fn a_fault_without_an_address_tells_its_operand() {
    let found = |code: fn(&mut DriverBuilder) -> Asm| {
        let kernel = Kernel::collecting();
        let _in = kernel.enter();
        assert_eq!(start(&kernel, &driver(&[], code)).err(), Some(StartError::Abandoned(Abandoned)));
        kernel.rules.stopped().map(|violation| violation.detail.clone()).unwrap_or_default()
    };
    let text = found(|b| {
        b.asm.mov(rbx, 0xDDDD_DDDD_DDDD_DDDD_u64)?;
        b.asm.mov(eax, dword_ptr(rbx + 0x10))
    });
    let (head, tail) =
        ("mov with an operand at 0xdddddddddddddded, which is no address", "what pool holds that is freed");
    assert!(text.starts_with(&format!("{head}: {tail}, at ")), "{text}");
    let text = found(|b| {
        b.asm.mov(rbx, 0x1234_5678_0000_0000_u64)?;
        b.asm.mov(qword_ptr(rbx), rax)
    });
    assert!(text.starts_with("mov with an operand at 0x1234567800000000, which is no address, at "), "{text}");
    let text = found(|b| b.asm.movaps(xmmword_ptr(rsp + 8), xmm0));
    assert!(text.starts_with("movaps with an operand at ") && text.contains("is not a multiple of 16, at "), "{text}");
    let text = found(|b| b.asm.cli());
    assert!(text.starts_with("cli, an instruction that is not for drivers, at "), "{text}");
}

#[test]
fn a_bad_pointer_to_a_service_names_the_call() {
    let file = driver(&["KeSetEvent"], |b| {
        b.asm.mov(ecx, 0x30)?;
        b.asm.xor(r8d, r8d)?;
        b.call("KeSetEvent");
        Ok(())
    });
    assert_eq!(stops_with(&file).0, NT_POINTER.name);
}

#[test]
fn a_bad_pointer_to_memcpy_is_the_drivers() {
    let file = driver(&["memcpy"], |b| {
        let target = b.data(&[0; 64]);
        b.lea(rcx, target);
        b.asm.mov(edx, 0x40)?;
        b.asm.mov(r8d, 32)?;
        b.call("memcpy");
        Ok(())
    });
    assert_eq!(stops_with(&file).0, NT_ACCESS.name);
}

/// What a `__except` of the driver's would take is not the driver's fault, and stops the machine all the same.
#[test]
fn a_fault_in_a_try_is_told_from_one_that_nobody_handles() {
    let loads = |address: u64| {
        move |b: &mut DriverBuilder| {
            b.asm.mov(rax, address)?;
            b.asm.mov(rax, qword_ptr(rax))
        }
    };
    let guarded = |excepts: bool, address: u64| driver(&[], |b| b.guarded(excepts, loads(address)));
    assert_eq!(stops_with(&guarded(true, 0x30)).0, NT_HANDLED.name);
    assert_eq!(stops_with(&guarded(false, 0x30)).0, NT_ACCESS.name, "a __finally takes nothing");
    assert_eq!(stops_with(&guarded(true, 0xFFFF_8000_0000_0000)).0, NT_ACCESS.name, "kernel memory");
    let behind = driver(&[], |b| {
        b.guarded(true, |b| b.asm.nop())?;
        loads(0x30)(b)
    });
    assert_eq!(stops_with(&behind).0, NT_ACCESS.name);
    let raised = driver(&["KfRaiseIrql"], |b| {
        b.guarded(true, |b| {
            b.asm.mov(ecx, 2)?;
            b.call("KfRaiseIrql");
            loads(0x30)(b)
        })
    });
    assert_eq!(stops_with(&raised).0, NT_ACCESS.name, "at DISPATCH_LEVEL");
    let called = |name: &'static str| {
        driver(&[name], |b| {
            b.guarded(true, |b| {
                let target = b.data(&[0; 64]);
                b.lea(rcx, target);
                b.asm.mov(edx, 0x40)?;
                b.asm.mov(r8d, 32)?;
                b.call(name);
                Ok(())
            })
        })
    };
    assert_eq!(stops_with(&called("memcpy")).0, NT_HANDLED.name);
    assert_eq!(stops_with(&called("RtlInitUnicodeString")).0, NT_HANDLED.name, "a service reads 0x40");
    let divides = driver(&[], |b| {
        b.guarded(true, |b| {
            b.asm.xor(ecx, ecx)?;
            b.asm.xor(edx, edx)?;
            b.asm.div(ecx)
        })
    });
    assert_eq!(stops_with(&divides).0, NT_HANDLED.name);
    // Kernel memory of the model is at addresses that Windows gives to processes.
    let writes = driver(&[], |b| {
        b.guarded(true, |b| {
            b.lea_text(rax);
            b.asm.mov(qword_ptr(rax), rcx)
        })
    });
    assert_eq!(stops_with(&writes).0, NT_ACCESS.name, "code is read-only");
}

#[test]
fn a_thread_without_a_start_address_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let file = driver(&["PsCreateSystemThread"], |b| {
        let handle = b.data(&[0; 8]);
        b.lea(rcx, handle);
        for slot in [0x20, 0x28, 0x30] {
            b.asm.mov(qword_ptr(rsp + slot), 0)?;
        }
        b.call("PsCreateSystemThread");
        b.asm.xor(eax, eax)
    });
    let _ = start(&kernel, &file);
    while !kernel.rules.is_stopped() {
        std::thread::yield_now();
    }
    assert!(kernel.rules.was_broken(&NT_ACCESS));
}

#[test]
fn a_bug_check_keeps_its_code_and_parameters() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let file = driver(&["KeBugCheckEx"], |b| {
        b.asm.mov(ecx, 0xDEAD)?;
        b.asm.mov(edx, 1)?;
        b.asm.mov(r8d, 2)?;
        b.asm.mov(r9d, 3)?;
        b.asm.mov(qword_ptr(rsp + 0x20), 4)?;
        b.call("KeBugCheckEx");
        Ok(())
    });
    assert!(start(&kernel, &file).is_err());
    let stop = kernel.rules.stopped().map(|stop| (stop.rule.name, stop.code, stop.params));
    assert_eq!(stop, Some((NT_BUGCHECK.name, 0xDEAD, [1, 2, 3, 4])));
}

#[test]
fn calling_a_missing_import_names_it() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let file = driver(&["CcSetFileSizes"], |b| {
        b.call("CcSetFileSizes");
        Ok(())
    });
    assert!(start(&kernel, &file).is_err());
    assert!(kernel.rules.was_broken(&NT_IMPORT));
    let detail = kernel.rules.stopped().map(|stop| stop.detail.clone()).unwrap_or_default();
    assert!(detail.starts_with("ntoskrnl.exe!CcSetFileSizes was called from test.sys+0x10"), "{detail}");
}

#[test]
fn a_deep_frame_is_measured_before_it_is_touched() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let file = driver(&["__chkstk", "KeGetCurrentIrql"], |b| {
        // A frame of 12,000 bytes, and a second one that is too much.
        for _ in 0..2 {
            b.asm.mov(eax, 12_000)?;
            b.call("__chkstk");
            b.asm.sub(rsp, rax)?;
        }
        b.call("KeGetCurrentIrql");
        b.asm.add(rsp, 24_000)?;
        b.asm.xor(eax, eax)
    });
    assert!(start(&kernel, &file).is_ok());
    assert!(kernel.rules.was_broken(&NT_STACK));
    assert!(kernel.stack_high_water()["DriverEntry"] >= 24_000);
    assert_eq!(kernel.rules.violations().len(), 1, "said once");
}

#[test]
fn an_endless_recursion_is_the_drivers() {
    let file = driver(&[], |b| {
        let mut again = b.asm.create_label();
        b.asm.set_label(&mut again)?;
        b.asm.sub(rsp, 0x28)?;
        b.asm.call(again)
    });
    // On a thread of the model: the test harness's own stack is of the harness's size.
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let inside = kernel.clone();
    let thread = kernel.spawn_system_thread("starter", move || {
        assert_eq!(start(&inside, &file).err(), Some(StartError::Abandoned(Abandoned)));
    });
    kernel.wait_for_object(thread.header(), None);
    assert_eq!(kernel.rules.stopped().map(|stop| stop.rule.name), Some(NT_STACK.name));
}

#[test]
fn cr8_and_gs_are_emulated() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let file = driver(&["KeGetCurrentIrql", "KeGetCurrentThread"], |b| {
        // Raise to 2, ask, lower; then compare gs:[188h] with the routine.
        b.asm.mov(eax, 2)?;
        b.asm.mov(rbx, cr8)?;
        b.asm.mov(cr8, rax)?;
        b.call("KeGetCurrentIrql");
        b.asm.mov(cr8, rbx)?;
        b.asm.movzx(ebx, al)?;
        b.call("KeGetCurrentThread");
        b.asm.mov(rcx, qword_ptr(0x188).gs())?;
        b.asm.sub(rax, rcx)?;
        b.asm.sub(ebx, 2)?;
        b.asm.or(eax, ebx)?;
        b.asm.neg(eax)
    });
    assert!(start(&kernel, &file).is_ok(), "{:?}", kernel.rules.violations());
    assert!(kernel.rules.violations().is_empty());
}

#[test]
fn shared_user_data_is_emulated() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let file = driver(&[], |b| {
        b.asm.mov(rax, 0xFFFF_F780_0000_0000_u64)?;
        b.asm.mov(eax, dword_ptr(rax + 0x260))?;
        b.asm.sub(eax, 26100)
    });
    assert!(start(&kernel, &file).is_ok());
}

#[test]
fn cr8_lowered_with_a_lock_held_is_caught() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let file = driver(&["KeAcquireSpinLockRaiseToDpc"], |b| {
        let lock = b.data(&[0; 8]);
        b.lea(rcx, lock);
        b.call("KeAcquireSpinLockRaiseToDpc");
        b.asm.xor(eax, eax)?;
        b.asm.mov(cr8, rax)
    });
    assert!(start(&kernel, &file).is_ok());
    assert!(kernel.rules.was_broken(&NT_IRQL_LOWER_LOCKED));
    assert!(kernel.rules.was_broken(&NT_SPIN_LEAKED), "it returned with the lock");
}

#[test]
fn pool_left_at_unload_is_named_with_tag_and_site() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let file = driver(&["ExAllocatePool2"], |b| {
        b.asm.mov(ecx, 0x40)?;
        b.asm.mov(edx, 100)?;
        b.asm.mov(r8d, i32::from_le_bytes(*b"Leak"))?;
        b.call("ExAllocatePool2");
        b.asm.xor(eax, eax)
    });
    let driver = start(&kernel, &file).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(kernel.unload_driver(&driver), Ok(()));
    let leak = kernel.rules.violations().into_iter().find(|v| v.rule.name == NT_POOL_LEAKED.name);
    let detail = leak.map(|leak| leak.detail).unwrap_or_default();
    assert!(detail.contains("tag 'Leak', by ExAllocatePool2 at test.sys+0x10"), "{detail}");
    assert!(detail.contains("in DriverEntry"), "{detail}");
    assert!(kernel.rules.was_broken(&NT_DRIVER_ENTRY), "there is no unload routine");
}

/// DriverEntry starts a thread that calls KeDelayExecutionThread for ever.
fn endless_thread() -> Vec<u8> {
    let mut builder = DriverBuilder::new(&["PsCreateSystemThread", "KeDelayExecutionThread", "ZwClose"]);
    let handle = builder.data(&[0; 8]);
    let interval = builder.data(&(-10_000_i64).to_le_bytes());
    builder
        .code(|b| {
            let mut body = b.asm.create_label();
            b.asm.sub(rsp, 0x48)?;
            b.lea(rcx, handle);
            b.asm.xor(edx, edx)?;
            b.asm.xor(r8d, r8d)?;
            b.asm.xor(r9d, r9d)?;
            b.asm.mov(qword_ptr(rsp + 0x20), 0)?;
            // Arguments five to seven: client, start routine, context.
            b.asm.lea(rax, ptr(body))?;
            b.asm.mov(qword_ptr(rsp + 0x28), rax)?;
            b.asm.mov(qword_ptr(rsp + 0x30), 0)?;
            b.call("PsCreateSystemThread");
            b.lea(rax, handle);
            b.asm.mov(rcx, qword_ptr(rax))?;
            b.call("ZwClose");
            b.asm.xor(eax, eax)?;
            b.asm.add(rsp, 0x48)?;
            b.asm.ret()?;
            b.asm.set_label(&mut body)?;
            b.asm.sub(rsp, 0x28)?;
            let mut again = b.asm.create_label();
            b.asm.set_label(&mut again)?;
            b.asm.xor(ecx, ecx)?;
            b.asm.xor(edx, edx)?;
            b.lea(r8, interval);
            b.call("KeDelayExecutionThread");
            b.asm.jmp(again)
        })
        .build()
}

#[test]
fn a_thread_left_at_unload_keeps_the_image_mapped_and_leaves_when_the_machine_stops() {
    let kernel = Kernel::collecting();
    let entered = kernel.enter();
    let driver = start(&kernel, &endless_thread()).unwrap_or_else(|error| panic!("{error}"));
    let thread = kernel.objects.threads().pop().unwrap_or_else(|| panic!("a thread"));
    assert_eq!(kernel.unload_driver(&driver), Ok(()));
    assert!(kernel.rules.was_broken(&NT_THREAD_LEAKED));
    assert!(kernel.drivers().iter().any(|image| image.name() == "test.sys"), "still mapped");
    assert!(!thread.has_ended());
    drop(entered);
    drop(kernel);
    while !thread.has_ended() {
        std::thread::yield_now();
    }
}

#[test]
fn policy_stop_leaves_the_driver_at_its_next_service() {
    let kernel = Kernel::new(KernelConfig { policy: Policy::Stop, ..KernelConfig::default() });
    kernel.rules.set_sink(|_| ());
    let _in = kernel.enter();
    let file = driver(&["KeLowerIrql", "KeBugCheckEx"], |b| {
        b.asm.mov(ecx, 9)?;
        b.call("KeLowerIrql");
        b.call("KeBugCheckEx");
        Ok(())
    });
    assert_eq!(start(&kernel, &file).err(), Some(StartError::Abandoned(Abandoned)));
    assert_eq!(kernel.rules.stopped().map(|stop| stop.rule.name), Some(NT_IRQL_LOWER.name));
    assert_eq!(kernel.rules.violations().len(), 1);
}
