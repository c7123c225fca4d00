//! The function beside QEMU's own: the same accesses to both, and the same answers, line and messages from both.
//!
//! QEMU runs with its processor stopped: this process drives the bus, over the qtest protocol. The message-signaled
//! interrupt is aimed at plain memory, where a message can be seen.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nt_model::mmio::Registers;
use nt_model::{InterruptLine, Kernel, Trigger};

use super::{Edu, EduRegisters};
use crate::port::pci::{BAR0_BYTES, CONFIG_SPACE};

/// Where the test puts BAR 0.
const BAR0: u64 = 0xFE00_0000;
/// Where messages go, and what they say.
const MESSAGE_ADDRESS: u64 = 0x10_0200;
const MESSAGE: u64 = 0x4321;
/// Offset of the MSI capability in configuration space.
const MSI: u32 = 0x40;
/// Accesses of one walk.
const STEPS: usize = 1_500;

/// A running QEMU with the device, over its pipe.
struct Qemu {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Qemu {
    fn start(trigger: Trigger) -> Self {
        let machine = ["-M", "q35", "-accel", "tcg", "-S", "-m", "16M", "-display", "none", "-nodefaults"];
        let mut process = Command::new("qemu-system-x86_64")
            .args(machine)
            .args(["-device", "edu,addr=04.0", "-qtest", "stdio", "-qtest-log", "none"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("qemu-system-x86_64: package qemu-system-x86 of Debian, which ./x test installs");
        let to = process.stdin.take().expect("a pipe");
        let from = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut qemu = Self { process, to, from };
        qemu.set_config(0x10, 4, BAR0);
        // Memory cycles and bus mastering, which messages are.
        qemu.set_config(0x04, 2, 6);
        if trigger == Trigger::Message {
            qemu.set_config(MSI + 4, 4, MESSAGE_ADDRESS);
            qemu.set_config(MSI + 8, 4, 0);
            qemu.set_config(MSI + 12, 2, MESSAGE);
            let control = qemu.config(MSI + 2, 2);
            qemu.set_config(MSI + 2, 2, control | 1);
        }
        qemu
    }

    /// Sends a command, and returns the number that is answered, if one is.
    fn ask(&mut self, command: &str) -> Option<u64> {
        writeln!(self.to, "{command}").expect("QEMU reads");
        loop {
            let mut line = String::new();
            assert_ne!(self.from.read_line(&mut line).expect("QEMU answers"), 0, "QEMU ended at {command}");
            let Some(answer) = line.strip_prefix("OK") else {
                assert!(!line.starts_with("FAIL") && !line.starts_with("ERR"), "{command}: {line}");
                continue;
            };
            let answer = answer.trim();
            let hex = answer.strip_prefix("0x");
            return hex.map_or_else(|| answer.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok());
        }
    }

    fn get(&mut self, command: &str) -> u64 {
        self.ask(command).unwrap_or_else(|| panic!("{command}: no number"))
    }

    fn letter(size: u8) -> char {
        match size {
            1 => 'b',
            2 => 'w',
            4 => 'l',
            _ => 'q',
        }
    }

    /// Points the port pair of configuration space at `offset`, and returns the port of the byte there.
    fn select(&mut self, offset: u32) -> u32 {
        self.ask(&format!("outl 0xcf8 {:#x}", 0x8000_0000_u32 | 4 << 11 | offset & !3));
        0xCFC + (offset & 3)
    }

    fn config(&mut self, offset: u32, size: u8) -> u64 {
        let port = self.select(offset);
        self.get(&format!("in{} {port:#x}", Self::letter(size)))
    }

    fn set_config(&mut self, offset: u32, size: u8, value: u64) {
        let port = self.select(offset);
        self.ask(&format!("out{} {port:#x} {value:#x}", Self::letter(size)));
    }

    fn read(&mut self, offset: u64, size: u8) -> u64 {
        self.get(&format!("read{} {:#x}", Self::letter(size), BAR0 + offset))
    }

    fn write(&mut self, offset: u64, size: u8, value: u64) {
        self.ask(&format!("write{} {:#x} {value:#x}", Self::letter(size), BAR0 + offset));
    }

    /// Whether the line is high: bit 3 of the status register in configuration space.
    fn is_asserted(&mut self) -> bool {
        self.config(0x06, 2) & 1 << 3 != 0
    }

    /// Whether a message came since the last call. One of several looks as one.
    fn takes_message(&mut self) -> bool {
        let message = self.get(&format!("readl {MESSAGE_ADDRESS:#x}"));
        self.ask(&format!("writel {MESSAGE_ADDRESS:#x} 0"));
        message == MESSAGE
    }

    /// Waits until the factorial is there: QEMU calculates it on a thread.
    fn settle(&mut self, interrupts: bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.read(0x20, 4) & 1 != 0 || interrupts && self.read(0x24, 4) & 1 == 0 {
            assert!(Instant::now() < end, "QEMU's factorial does not end");
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The model's function, on a machine of its own.
struct Ours {
    kernel: Kernel,
    line: Arc<InterruptLine>,
    registers: EduRegisters,
    messages: Arc<AtomicU32>,
}

impl Ours {
    fn new(trigger: Trigger) -> Self {
        let kernel = Kernel::collecting();
        let line = InterruptLine::new("edu", trigger, 0);
        let messages = Arc::new(AtomicU32::new(0));
        if trigger == Trigger::Message {
            let _in = kernel.enter();
            let messages = messages.clone();
            let count = move |_| {
                messages.fetch_add(1, Ordering::SeqCst);
                true
            };
            kernel.connect_interrupt(&line, 7, count).expect("connected");
        }
        let registers = EduRegisters(Arc::new(Edu::new(Some(line.clone()), 0)));
        Self { kernel, line, registers, messages }
    }
}

/// Numbers of a fixed sequence. Source: Marsaglia, "Xorshift RNGs" (2003), the triple 13, 7, 17.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // CAST: a remainder by a small number.
        (self.0 % end as u64) as usize
    }
}

/// What both are asked to read behind each store: every register below 0x80 and what lies between them, in the one
/// size that they have, and some in others.
fn looks() -> impl Iterator<Item = (u64, u8)> {
    let words = (0..0x80).step_by(4).map(|offset| (offset, 4));
    words.chain([
        (0x00, 1),
        (0x04, 2),
        (0x00, 8),
        (0x20, 8),
        (0x24, 1),
        (0x24, 2),
        (0x78, 8),
        (0x04, 8),
        (0x1C, 8),
        (0x02, 4),
        (0x1E, 4),
        (0xF_FFFC, 4),
    ])
}

fn compare(trigger: Trigger) {
    const OFFSETS: [u64; 11] = [0x00, 0x04, 0x08, 0x20, 0x22, 0x24, 0x28, 0x60, 0x60, 0x64, 0x64];
    const VALUES: [u64; 10] = [0, 1, 2, 5, 6, 0x80, 0x81, 0x100, 0x8000_0001, 0xFFFF_FFFF];
    let (mut theirs, ours) = (Qemu::start(trigger), Ours::new(trigger));
    let _in = ours.kernel.enter();
    let mut random = Sequence(0x2545_F491_4F6C_DD1D);
    let mut walk = Vec::new();
    for _ in 0..STEPS {
        let offset = OFFSETS[random.below(OFFSETS.len())];
        let size = [4, 4, 4, 4, 1, 2, 8][random.below(7)];
        // A number whose factorial ends soon.
        let value = if offset == 0x08 { random.below(40) as u64 } else { VALUES[random.below(VALUES.len())] };
        // The bus splits eight bytes that are not aligned: their upper half is a store to the factorial.
        let begins = matches!((offset, size), (0x08, 4) | (0x04, 8));
        let interrupts = begins && theirs.read(0x20, 4) & 0x80 != 0;
        // The factorial's interrupt is waited for by its bit, which must be clear before.
        let first = interrupts.then_some((0x64, 4, 1));
        for (offset, size, value) in first.into_iter().chain([(offset, size, value)]) {
            walk.push(format!("{size} bytes {value:#x} to {offset:#x}"));
            theirs.write(offset, size, value);
            ours.registers.write(offset, size, value);
        }
        if begins {
            theirs.settle(interrupts);
        }
        let last = || walk[walk.len().saturating_sub(12)..].join("\n");
        for (offset, size) in looks() {
            let (wanted, found) = (theirs.read(offset, size), ours.registers.read(offset, size));
            let mask = u64::MAX >> (64 - 8 * u32::from(size));
            assert_eq!(found & mask, wanted, "{size} bytes at {offset:#x}, {trigger:?}, behind\n{}", last());
        }
        match trigger {
            Trigger::Level => assert_eq!(ours.line.is_asserted(), theirs.is_asserted(), "the line, behind\n{}", last()),
            Trigger::Message => {
                let message = ours.messages.swap(0, Ordering::SeqCst) != 0;
                assert_eq!(message, theirs.takes_message(), "a message, behind\n{}", last());
                assert!(!theirs.is_asserted(), "no line under MSI");
            }
        }
    }
}

#[test]
fn the_line_and_the_registers_are_qemus() {
    compare(Trigger::Level);
}

#[test]
fn the_messages_and_the_registers_are_qemus() {
    compare(Trigger::Message);
}

/// What is fixed in configuration space: ids, class, size of BAR 0, pin, capabilities.
#[test]
fn the_configuration_space_is_qemus() {
    let mut theirs = Qemu::start(Trigger::Level);
    for offset in [0x00, 0x08, 0x14, 0x18, 0x1C, 0x20, 0x24, 0x28, 0x2C, 0x30, 0x34, 0x40] {
        let wanted = theirs.config(offset, 4);
        let ours = CONFIG_SPACE.iter().find(|(at, _)| *at == offset).map_or(0, |(_, word)| *word);
        // Cache line size, latency, header type and BIST are the bus's in the third word.
        assert_eq!(u64::from(ours), wanted, "offset {offset:#x}");
    }
    assert_eq!(theirs.config(0x3D, 1), 1, "pin A");
    theirs.set_config(0x10, 4, 0xFFFF_FFFF);
    let size = u64::from((!(theirs.config(0x10, 4) & !0xF)) as u32) + 1;
    assert_eq!(size, BAR0_BYTES);
}
