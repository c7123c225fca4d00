//! Register accesses of every form, interrupts that they raise, and what must not be disturbed by them.
#![expect(unsafe_code, reason = "the tests execute chosen instructions on device registers")]

use std::arch::asm;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::interrupt::{InterruptLine, Trigger};
use crate::kernel::Kernel;
use crate::memory::CacheType;
use crate::mmio::Registers;

const BASE: u64 = 0xE000_0000;

/// Remembers stores, and answers loads with what is stored.
#[derive(Default)]
struct Device {
    words: Mutex<Vec<u8>>,
    log: Mutex<Vec<(bool, u64, u8, u64)>>,
    /// Raised by a store to 0x100, silenced by a store to 0x108.
    line: Option<(Kernel, Arc<InterruptLine>)>,
}

impl Registers for Arc<Device> {
    fn read(&self, offset: u64, size: u8) -> u64 {
        let words = self.words.lock();
        let at = offset as usize;
        let mut bytes = [0; 8];
        bytes[..size.into()].copy_from_slice(&words[at..at + usize::from(size)]);
        let value = u64::from_le_bytes(bytes);
        self.log.lock().push((false, offset, size, value));
        value
    }

    fn write(&self, offset: u64, size: u8, value: u64) {
        self.log.lock().push((true, offset, size, value));
        if let Some((kernel, line)) = &self.line {
            match offset {
                0x100 => return kernel.assert_interrupt(line),
                0x108 => return line.deassert(),
                _ => (),
            }
        }
        let mut words = self.words.lock();
        let at = offset as usize;
        words[at..at + usize::from(size)].copy_from_slice(&value.to_le_bytes()[..size.into()]);
    }
}

fn device(kernel: &Kernel, line: Option<Arc<InterruptLine>>) -> (Arc<Device>, usize) {
    let line = line.map(|line| (kernel.clone(), line));
    let device = Arc::new(Device { words: Mutex::new(vec![0; 0x1000]), line, ..Device::default() });
    assert!(kernel.add_device_registers("test", BASE, 0x1000, device.clone()).is_ok());
    let at = kernel.map_io_space(BASE, 0x1000, CacheType::NonCached);
    (device, at.unwrap_or_else(|| panic!("mapped")))
}

/// Runs one instruction with `rcx` = the register page and `rax` in and out.
macro_rules! instruction {
    ($text:literal, $at:expr, $rax:expr) => {{
        let mut rax: u64 = $rax;
        // SAFETY: the instruction touches the mapped register page and rax.
        unsafe { asm!($text, inout("rax") rax, in("rcx") $at) };
        rax
    }};
}

#[test]
fn loads_and_stores_of_every_size() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (device, at) = device(&kernel, None);
    device.words.lock()[..16]
        .copy_from_slice(&[0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 1, 2, 3, 4, 5, 6, 7, 8]);
    const OLD: u64 = 0xAAAA_AAAA_AAAA_AAAA;
    assert_eq!(instruction!("mov rax, [rcx]", at, OLD), 0x8887_8685_8483_8281);
    assert_eq!(instruction!("mov eax, [rcx]", at, OLD), 0x8483_8281);
    assert_eq!(instruction!("mov ax, [rcx]", at, OLD), 0xAAAA_AAAA_AAAA_8281);
    assert_eq!(instruction!("mov al, [rcx]", at, OLD), 0xAAAA_AAAA_AAAA_AA81);
    assert_eq!(instruction!("mov ah, [rcx]", at, OLD), 0xAAAA_AAAA_AAAA_81AA);
    assert_eq!(instruction!("movzx eax, byte ptr [rcx + 1]", at, OLD), 0x82);
    assert_eq!(instruction!("movzx eax, word ptr [rcx + 1]", at, OLD), 0x8382);
    assert_eq!(instruction!("movsx eax, byte ptr [rcx]", at, OLD), 0xFFFF_FF81);
    assert_eq!(instruction!("movsx rax, word ptr [rcx]", at, OLD), 0xFFFF_FFFF_FFFF_8281);
    assert_eq!(instruction!("movsxd rax, dword ptr [rcx]", at, OLD), 0xFFFF_FFFF_8483_8281);
    device.log.lock().clear();
    instruction!("mov [rcx + 0x20], rax", at, 0x1122_3344_5566_7788);
    instruction!("mov [rcx + 0x28], eax", at, 0x1122_3344_5566_7788);
    instruction!("mov [rcx + 0x30], ax", at, 0x1122_3344_5566_7788);
    instruction!("mov [rcx + 0x38], al", at, 0x1122_3344_5566_7788);
    instruction!("mov byte ptr [rcx + 0x39], 0x7F", at, 0);
    instruction!("mov dword ptr [rcx + 0x40], -2", at, 0);
    instruction!("mov qword ptr [rcx + 0x48], -2", at, 0);
    instruction!("movnti [rcx + 0x50], rax", at, 5);
    let stores: Vec<_> = device.log.lock().iter().map(|(_, offset, size, value)| (*offset, *size, *value)).collect();
    assert_eq!(
        stores,
        [
            (0x20, 8, 0x1122_3344_5566_7788),
            (0x28, 4, 0x5566_7788),
            (0x30, 2, 0x7788),
            (0x38, 1, 0x88),
            (0x39, 1, 0x7F),
            (0x40, 4, 0xFFFF_FFFE),
            (0x48, 8, 0xFFFF_FFFF_FFFF_FFFE),
            (0x50, 8, 5),
        ]
    );
}

#[test]
fn read_modify_write_and_flags() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (device, at) = device(&kernel, None);
    let word = || u32::from_le_bytes(device.words.lock()[..4].try_into().unwrap_or_default());
    instruction!("mov dword ptr [rcx], 0xF0", at, 0);
    instruction!("or dword ptr [rcx], 0x0F", at, 0);
    assert_eq!(word(), 0xFF);
    instruction!("and dword ptr [rcx], eax", at, 0x3C);
    assert_eq!(word(), 0x3C);
    assert_eq!(instruction!("xchg [rcx], eax", at, 0x77), 0x3C);
    assert_eq!(word(), 0x77);
    instruction!("add dword ptr [rcx], 1", at, 0);
    instruction!("inc dword ptr [rcx]", at, 0);
    assert_eq!(word(), 0x79);
    assert_eq!(instruction!("and eax, [rcx]", at, 0x0F), 0x09);
    // Flags: sete, setb, sets, seto after a compare or test.
    assert_eq!(instruction!("cmp dword ptr [rcx], 0x79\nsete al", at, 0), 1);
    assert_eq!(instruction!("cmp dword ptr [rcx], 0x7A\nsetb al", at, 0), 1);
    assert_eq!(instruction!("cmp [rcx], eax\nsets al", at, 0x80), 0x01);
    assert_eq!(instruction!("test dword ptr [rcx], 0x06\nsete al", at, 0), 1);
    assert_eq!(instruction!("test dword ptr [rcx], 1\nsete al", at, 0), 0);
    assert_eq!(instruction!("sub eax, [rcx]\nsetb al", at, 0), 0xFFFF_FF01);
    instruction!("mov byte ptr [rcx + 8], 0x7F", at, 0);
    assert_eq!(instruction!("add byte ptr [rcx + 8], 1\nseto al", at, 0), 1);
}

#[test]
fn vector_and_string_forms() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (device, at) = device(&kernel, None);
    let value = [0x1111_2222_3333_4444_u64, 0x5555_6666_7777_8888];
    let mut back = [0_u64; 2];
    // SAFETY: moves 16 bytes through xmm3 between the arrays and the register page.
    unsafe {
        asm!(
            "movups xmm3, [{value}]", "movups [rcx + 0x40], xmm3", "pxor xmm3, xmm3", "movups xmm3, [rcx + 0x40]",
            "movups [{back}], xmm3", value = in(reg) &value, back = in(reg) &mut back, in("rcx") at, out("xmm3") _
        );
    }
    assert_eq!(back, value);
    let source = [0xAB_u8; 12];
    // SAFETY: copies twelve bytes to the register page, then fills sixteen more there.
    unsafe {
        asm!(
            "rep movsb", "mov ecx, 4", "mov eax, 0x01020304", "rep stosd",
            inout("rcx") 12_u64 => _, inout("rdi") at + 0x80 => _, inout("rsi") source.as_ptr() => _, out("rax") _
        );
    }
    assert_eq!(device.words.lock()[0x80..0x8C], source);
    assert_eq!(device.words.lock()[0x8C..0x90], [4, 3, 2, 1]);
    assert_eq!(device.words.lock()[0x9C..0xA4], [0; 8]);
}

#[test]
fn an_interrupt_is_taken_between_two_instructions_and_disturbs_nothing() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let line = InterruptLine::new("test", Trigger::Level, 0);
    let (device, at) = device(&kernel, Some(line.clone()));
    let (inside, own) = (kernel.arc(), line.clone());
    let handled = Arc::new(AtomicU64::new(0));
    let count = handled.clone();
    let _interrupt = kernel.connect_interrupt(&line, 6, move |_| {
        assert_eq!(inside.irql(), 6);
        own.deassert();
        // Touch every kind of register that the interrupted code may use.
        let text = format!("{:?} {}", std::time::Instant::now(), 1.5_f64.sin());
        count.fetch_add(text.len().min(1) as u64, Ordering::Relaxed);
        true
    });
    let mut registers = [0_u64; 6];
    // SAFETY: one store to the register page; everything else is registers and the flags.
    unsafe {
        asm!(
            "mov r8, 0x1234", "mov r9, 0x5678", "mov r10, 0x9ABC", "mov r11, 0xDEF0", "movq xmm0, r8", "movq xmm9, r9",
            "stc",
            "mov dword ptr [rcx + 0x100], 1",
            "setc al", "movzx eax, al", "mov [{out}], rax",
            "mov [{out} + 8], r8", "mov [{out} + 16], r9",
            "movq r10, xmm0", "mov [{out} + 24], r10", "movq r10, xmm9", "mov [{out} + 32], r10", "mov [{out} + 40], r11",
            out = in(reg) &mut registers, in("rcx") at, out("rax") _, out("r8") _, out("r9") _, out("r10") _,
            out("r11") _, out("xmm0") _, out("xmm9") _
        );
    }
    assert_eq!(registers, [1, 0x1234, 0x5678, 0x1234, 0x5678, 0xDEF0]);
    assert_eq!((handled.load(Ordering::Relaxed), kernel.irql()), (1, 0));
    assert_eq!(device.log.lock().len(), 1);
}

#[test]
fn the_red_zone_of_the_interrupted_code_survives() {
    #[inline(never)]
    fn leaf(at: usize) -> u64 {
        let sum: u64;
        // SAFETY: uses the 128 bytes below the stack pointer, as a leaf function may, around a load from the registers.
        unsafe {
            asm!(
                "mov qword ptr [rsp - 8], 11", "mov qword ptr [rsp - 64], 22", "mov qword ptr [rsp - 128], 33",
                "mov rax, [rcx]",
                "mov rax, [rsp - 8]", "add rax, [rsp - 64]", "add rax, [rsp - 128]",
                in("rcx") at, out("rax") sum
            );
        }
        sum
    }
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let (_device, at) = device(&kernel, None);
    assert_eq!(leaf(at), 66);
}

#[test]
fn beyond_the_range_reads_all_ones() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    let device = Arc::new(Device { words: Mutex::new(vec![0; 0x10]), ..Device::default() });
    assert!(kernel.add_device_registers("short", BASE, 0x10, device.clone()).is_ok());
    assert!(kernel.add_device_registers("other", BASE, 0x10, device).is_err(), "taken");
    let at = kernel.map_io_space(BASE, 0x10, CacheType::NonCached).unwrap_or_default();
    assert_eq!(instruction!("mov eax, [rcx + 0x10]", at, 0), 0xFFFF_FFFF);
    kernel.unmap_io_space(at, 0x10);
    assert!(kernel.rules.violations().is_empty());
}

/// Prints what an emulated access costs. Run with `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost_of_an_access() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    struct Fast;
    impl Registers for Fast {
        fn read(&self, _: u64, _: u8) -> u64 {
            1
        }
        fn write(&self, _: u64, _: u8, _: u64) {}
    }
    assert!(kernel.add_device_registers("fast", BASE, 0x1000, Fast).is_ok());
    let at = kernel.map_io_space(BASE, 0x1000, CacheType::NonCached).unwrap_or_default();
    const COUNT: u32 = 200_000;
    let start = std::time::Instant::now();
    for _ in 0..COUNT {
        instruction!("mov eax, [rcx]", at, 0);
    }
    println!("register load: {:?}", start.elapsed() / COUNT);
    let start = std::time::Instant::now();
    for _ in 0..COUNT {
        instruction!("mov [rcx], eax", at, 0);
    }
    println!("register store: {:?}", start.elapsed() / COUNT);
}
