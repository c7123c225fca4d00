//! Emulates one trapped instruction: register accesses of devices, `cr8`, the shared user data page, `gs`.
//!
//! Compilers use few forms for these: loads and stores of 1 to 8 bytes, zero- and sign-extending loads, `movnti`, SSE
//! moves, `xchg`, read-modify-write arithmetic, compares and tests, string stores and moves. Those are emulated; any
//! other form is reported with its mnemonic.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::Fault;
use crate::arch::{TrapFrame, VectorState};
use crate::cpu;
use crate::kernel::Machine;
use crate::memory::host;
use crate::memory::regions::Backing;
use crate::mmio::DeviceRange;
use crate::pool;
use crate::routines::{DISPATCH_LEVEL, HIGH_LEVEL};
use crate::rules_nt::{NT_IRQL_LOWER, NT_IRQL_LOWER_LOCKED, NT_IRQL_RAISE};
use crate::sched::YieldPoint;
use crate::thread::Thread;

/// `KI_USER_SHARED_DATA`.
const SHARED_USER_DATA: u64 = 0xFFFF_F780_0000_0000;
/// Below this, a fault address is an offset from a segment base of 0.
const SEGMENT_LIMIT: u64 = 0x1_0000;

const CF: u64 = 1 << 0;
const PF: u64 = 1 << 2;
const AF: u64 = 1 << 4;
const ZF: u64 = 1 << 6;
const SF: u64 = 1 << 7;
const DF: u64 = 1 << 10;
const OF: u64 = 1 << 11;

/// What answers an emulated access.
trait Bus {
    fn read(&self, offset: u64, size: u8) -> u64;
    fn write(&self, offset: u64, size: u8, value: u64);
}

impl Bus for DeviceRange {
    fn read(&self, offset: u64, size: u8) -> u64 {
        DeviceRange::read(self, offset, size)
    }

    fn write(&self, offset: u64, size: u8, value: u64) {
        DeviceRange::write(self, offset, size, value);
    }
}

/// Words that the model answers itself.
struct Words<F>(F);

impl<F: Fn(u64) -> Option<u64>> Bus for Words<F> {
    fn read(&self, offset: u64, _size: u8) -> u64 {
        (self.0)(offset).unwrap_or(0)
    }

    fn write(&self, _offset: u64, _size: u8, _value: u64) {}
}

/// Decodes the instruction at `rip`.
fn decode(rip: usize) -> Option<Instruction> {
    let to_page_end = 0x1000 - rip % 0x1000;
    let mut bytes = [0; 15];
    let first = to_page_end.min(15);
    host::read(rip, &mut bytes[..first]);
    let mut instruction = Decoder::with_ip(64, &bytes[..first], rip as u64, DecoderOptions::NONE).decode();
    if instruction.is_invalid() && first < 15 && crate::shim::touch(rip + first, 1) {
        host::read(rip + first, &mut bytes[first..]);
        instruction = Decoder::with_ip(64, &bytes, rip as u64, DecoderOptions::NONE).decode();
    }
    (!instruction.is_invalid()).then_some(instruction)
}

/// The instruction at `rip`, for a report.
pub(super) fn describe(rip: usize, frame: &TrapFrame) -> String {
    let Some(instruction) = decode(rip) else { return "an undecodable instruction".to_owned() };
    if instruction.mnemonic() == Mnemonic::Int && instruction.immediate8() == 0x29 {
        return format!("__fastfail({:#x})", frame.register(1));
    }
    let name = format!("{:?}", instruction.mnemonic()).to_ascii_lowercase();
    match operand(&instruction, frame) {
        Some(address) if !is_canonical(address) => {
            let written = pool::pattern(address).map_or_else(String::new, |what| format!(": {what}"));
            format!("{name} with an operand at {address:#x}, which is no address{written}")
        }
        Some(address) if instruction.memory_size().size() >= 16 && address % 16 != 0 => {
            format!("{name} with an operand at {address:#x}, which is not a multiple of 16")
        }
        _ => format!("{name}, an instruction that is not for drivers"),
    }
}

/// Where the memory operand lies, where the instruction has one.
fn operand(instruction: &Instruction, frame: &TrapFrame) -> Option<u64> {
    let at = (0..instruction.op_count()).find(|at| instruction.op_kind(*at) == OpKind::Memory)?;
    instruction.virtual_address(at, 0, |register, _, _| match register {
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        register if register.is_gpr() => Some(get(frame, register)),
        _ => None,
    })
}

/// Returns whether the address's upper 17 bits are alike, as the processor demands.
fn is_canonical(address: u64) -> bool {
    // CAST: the arithmetic shift is the point.
    matches!((address as i64) >> 47, 0 | -1)
}

impl Machine {
    /// Emulates the trapped instruction if it is one of those that the model answers for. True when it is done.
    pub(super) fn emulate(&self, fault: &Fault, frame: &mut TrapFrame, vectors: &mut VectorState) -> bool {
        // CAST: addresses.
        let (rip, address) = (fault.rip as usize, fault.address as usize);
        if !fault.page {
            return self.emulate_cr8(rip, frame);
        }
        if fault.address >= SHARED_USER_DATA && fault.address < SHARED_USER_DATA + 0x1000 {
            let words = Words(|offset| self.shared_user_data(offset));
            return with_instruction(rip, |i| access(i, &words, fault.address - SHARED_USER_DATA, frame, vectors));
        }
        if fault.address < SEGMENT_LIMIT {
            return with_instruction(rip, |instruction| {
                let known =
                    instruction.memory_segment() == Register::GS && self.control_region(fault.address).is_some();
                let words = Words(|offset| self.control_region(offset));
                known && access(instruction, &words, fault.address, frame, vectors)
            });
        }
        let Some(region) = self.memory.regions.find(address) else { return false };
        let Backing::Registers(range, first) = &region.backing else { return false };
        self.yield_point(YieldPoint::Register);
        let offset = first + (address - region.start) as u64;
        let outer = cpu::with(|cpu| cpu.in_register.replace(true));
        let done = with_instruction(rip, |instruction| access(instruction, &**range, offset, frame, vectors));
        cpu::with(|cpu| cpu.in_register.set(outer));
        if done {
            self.deliver_raised_interrupts();
        }
        done
    }

    fn emulate_cr8(&self, rip: usize, frame: &mut TrapFrame) -> bool {
        with_instruction(rip, |instruction| {
            if instruction.mnemonic() != Mnemonic::Mov || instruction.op_count() != 2 {
                return false;
            }
            if instruction.op1_register() == Register::CR8 {
                set(frame, instruction.op0_register(), self.irql().into());
            } else if instruction.op0_register() == Register::CR8 {
                self.write_cr8(get(frame, instruction.op1_register()));
            } else {
                return false;
            }
            frame.rip = instruction.next_ip();
            true
        })
    }

    /// `mov cr8, r64`: what KeRaiseIrql and KeLowerIrql are when a compiler inlines them.
    fn write_cr8(&self, value: u64) {
        let old = self.irql();
        // CAST: checked against HIGH_LEVEL right here.
        let new = value as u8;
        let rule = if u64::from(old) <= value { &NT_IRQL_RAISE } else { &NT_IRQL_LOWER };
        let text = || format!("cr8 is {old} and {value} is written");
        if !self.rules.check(rule, value <= u64::from(HIGH_LEVEL), text) {
            return;
        }
        let held = cpu::with(|cpu| cpu.held_count());
        self.rules.check(&NT_IRQL_LOWER_LOCKED, new >= DISPATCH_LEVEL || held == 0, || {
            format!("cr8 is lowered from {old} to {new} with {held} spin locks held")
        });
        self.set_irql(new);
    }

    /// Words of `KUSER_SHARED_DATA` that drivers read inline: times, tick count, version.
    fn shared_user_data(&self, offset: u64) -> Option<u64> {
        let interrupt = self.query_interrupt_time(false);
        let system = self.query_system_time(false);
        let ticks = self.query_tick_count();
        // KSYSTEM_TIME: low, high, high again.
        Some(match offset {
            0x000 => ticks & 0xFFFF_FFFF,
            0x004 => 0x0FA0_0000,
            0x008 => interrupt,
            0x00C | 0x010 => interrupt >> 32,
            0x014 => system,
            0x018 | 0x01C => system >> 32,
            0x260 => 26100,
            0x26C => 10,
            0x320 => ticks,
            0x324 | 0x328 => ticks >> 32,
            _ => return None,
        })
    }

    /// Words of the processor control region.
    fn control_region(&self, offset: u64) -> Option<u64> {
        Some(match offset {
            // KPCR.Prcb.CurrentThread, KPCR.Irql, KPCR.Prcb.Number.
            0x188 => self.with_current_thread(Thread::address) as u64,
            0x050 => self.irql().into(),
            0x1A4 => self.current_processor().into(),
            _ => return None,
        })
    }
}

fn with_instruction(rip: usize, f: impl FnOnce(&Instruction) -> bool) -> bool {
    decode(rip).is_some_and(|instruction| f(&instruction))
}

/// A general register's value, in its own width.
fn get(frame: &TrapFrame, register: Register) -> u64 {
    let value = frame.register(register.full_register().number());
    if is_high_byte(register) {
        return value >> 8 & 0xFF;
    }
    value & mask(register.size() as u8)
}

/// Sets a general register as the processor does: 32-bit writes clear the upper half, smaller ones keep the rest.
fn set(frame: &mut TrapFrame, register: Register, value: u64) {
    let number = register.full_register().number();
    let old = frame.register(number);
    let new = match register.size() {
        8 => value,
        4 => value & 0xFFFF_FFFF,
        2 => old & !0xFFFF | value & 0xFFFF,
        _ if is_high_byte(register) => old & !0xFF00 | (value & 0xFF) << 8,
        _ => old & !0xFF | value & 0xFF,
    };
    frame.set_register(number, new);
}

fn is_high_byte(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

fn mask(size: u8) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (8 * u32::from(size))) - 1 }
}

fn sign_extend(value: u64, size: u8) -> u64 {
    let shift = 64 - 8 * u32::from(size.min(8));
    // CAST: the arithmetic shift is the point.
    ((value << shift) as i64 >> shift) as u64
}

/// Emulates `instruction`, whose memory operand is at `offset` of `bus`.
fn access(
    instruction: &Instruction,
    bus: &dyn Bus,
    offset: u64,
    frame: &mut TrapFrame,
    vectors: &mut VectorState,
) -> bool {
    if instruction.is_string_instruction() {
        return string(instruction, bus, offset, frame);
    }
    // CAST: at most 64 bytes.
    let size = instruction.memory_size().size() as u8;
    let done = match size {
        1 | 2 | 4 | 8 => scalar(instruction, bus, offset, size, frame, vectors),
        16 => wide(instruction, bus, offset, vectors),
        _ => false,
    };
    if done {
        frame.rip = instruction.next_ip();
    }
    done
}

/// The operand that is not memory: a register or an immediate.
fn other_operand(instruction: &Instruction, memory: u32, frame: &TrapFrame, size: u8) -> u64 {
    let other = 1 - memory;
    match instruction.op_kind(other) {
        OpKind::Register => get(frame, instruction.op_register(other)),
        _ => instruction.immediate(other) & mask(size),
    }
}

fn scalar(
    instruction: &Instruction,
    bus: &dyn Bus,
    offset: u64,
    size: u8,
    frame: &mut TrapFrame,
    vectors: &mut VectorState,
) -> bool {
    let stores = instruction.op0_kind() == OpKind::Memory;
    let memory = u32::from(!stores);
    let read = || bus.read(offset, size) & mask(size);
    match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movnti if stores => {
            bus.write(offset, size, other_operand(instruction, memory, frame, size));
        }
        Mnemonic::Mov | Mnemonic::Movzx => set(frame, instruction.op0_register(), read()),
        Mnemonic::Movsx | Mnemonic::Movsxd => set(frame, instruction.op0_register(), sign_extend(read(), size)),
        Mnemonic::Movd | Mnemonic::Movq | Mnemonic::Movss | Mnemonic::Movsd | Mnemonic::Movlps | Mnemonic::Movlpd => {
            return vector_scalar(instruction, bus, offset, size, stores, vectors);
        }
        Mnemonic::Xchg => {
            let register = instruction.op_register(1 - memory);
            let old = read();
            bus.write(offset, size, get(frame, register));
            set(frame, register, old);
        }
        Mnemonic::Cmp | Mnemonic::Test => {
            let (left, right) = operands(instruction, memory, read(), frame, size);
            arithmetic(instruction.mnemonic(), left, right, size, &mut frame.flags);
        }
        Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Add | Mnemonic::Sub => {
            let (left, right) = operands(instruction, memory, read(), frame, size);
            let result = arithmetic(instruction.mnemonic(), left, right, size, &mut frame.flags);
            if stores {
                bus.write(offset, size, result);
            } else {
                set(frame, instruction.op0_register(), result);
            }
        }
        Mnemonic::Inc | Mnemonic::Dec => {
            let carry = frame.flags & CF;
            let kind = if instruction.mnemonic() == Mnemonic::Inc { Mnemonic::Add } else { Mnemonic::Sub };
            let result = arithmetic(kind, read(), 1, size, &mut frame.flags);
            frame.flags = frame.flags & !CF | carry;
            bus.write(offset, size, result);
        }
        Mnemonic::Not => {
            let value = read();
            bus.write(offset, size, !value & mask(size));
        }
        _ => return false,
    }
    true
}

/// Left and right operand, in the instruction's order.
fn operands(instruction: &Instruction, memory: u32, value: u64, frame: &TrapFrame, size: u8) -> (u64, u64) {
    let other = other_operand(instruction, memory, frame, size);
    if memory == 0 { (value, other) } else { (other, value) }
}

fn arithmetic(kind: Mnemonic, left: u64, right: u64, size: u8, flags: &mut u64) -> u64 {
    let bits = mask(size);
    let sign = 1 << (8 * u32::from(size) - 1);
    let (result, carry, overflow) = match kind {
        Mnemonic::And | Mnemonic::Test => (left & right, false, false),
        Mnemonic::Or => (left | right, false, false),
        Mnemonic::Xor => (left ^ right, false, false),
        Mnemonic::Add => {
            let result = left.wrapping_add(right) & bits;
            (result, result < left, (left ^ result) & (right ^ result) & sign != 0)
        }
        _ => {
            let result = left.wrapping_sub(right) & bits;
            (result, left < right, (left ^ right) & (left ^ result) & sign != 0)
        }
    };
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    *flags &= !(CF | PF | AF | ZF | SF | OF);
    *flags |= flag(carry, CF)
        | flag((result as u8).count_ones().is_multiple_of(2), PF)
        | flag((left ^ right ^ result) & 0x10 != 0, AF)
        | flag(result == 0, ZF)
        | flag(result & sign != 0, SF)
        | flag(overflow, OF);
    result
}

fn vector_scalar(
    instruction: &Instruction,
    bus: &dyn Bus,
    offset: u64,
    size: u8,
    stores: bool,
    vectors: &mut VectorState,
) -> bool {
    let register = instruction.op_register(u32::from(stores));
    if !register.is_xmm() {
        return false;
    }
    if stores {
        bus.write(offset, size, vectors.xmm(register.number())[0] & mask(size));
    } else {
        let keeps_upper = matches!(instruction.mnemonic(), Mnemonic::Movlps | Mnemonic::Movlpd);
        let upper = if keeps_upper { vectors.xmm(register.number())[1] } else { 0 };
        vectors.set_xmm(register.number(), [bus.read(offset, size) & mask(size), upper]);
    }
    true
}

/// 16-byte moves, as two halves.
fn wide(instruction: &Instruction, bus: &dyn Bus, offset: u64, vectors: &mut VectorState) -> bool {
    let is_move = matches!(
        instruction.mnemonic(),
        Mnemonic::Movaps
            | Mnemonic::Movups
            | Mnemonic::Movapd
            | Mnemonic::Movupd
            | Mnemonic::Movdqa
            | Mnemonic::Movdqu
            | Mnemonic::Movntdq
            | Mnemonic::Movntps
            | Mnemonic::Lddqu
    );
    let stores = instruction.op0_kind() == OpKind::Memory;
    let register = instruction.op_register(u32::from(stores));
    if !is_move || !register.is_xmm() {
        return false;
    }
    if stores {
        let [low, high] = vectors.xmm(register.number());
        bus.write(offset, 8, low);
        bus.write(offset + 8, 8, high);
    } else {
        let low = bus.read(offset, 8);
        vectors.set_xmm(register.number(), [low, bus.read(offset + 8, 8)]);
    }
    true
}

/// One iteration of a string store, load or move; the instruction runs again while a repeat count is left.
fn string(instruction: &Instruction, bus: &dyn Bus, offset: u64, frame: &mut TrapFrame) -> bool {
    const RAX: usize = 0;
    const RCX: usize = 1;
    const RSI: usize = 6;
    const RDI: usize = 7;
    let size: u8 = match instruction.mnemonic() {
        Mnemonic::Stosb | Mnemonic::Movsb | Mnemonic::Lodsb => 1,
        Mnemonic::Stosw | Mnemonic::Movsw | Mnemonic::Lodsw => 2,
        Mnemonic::Stosd | Mnemonic::Movsd | Mnemonic::Lodsd => 4,
        Mnemonic::Stosq | Mnemonic::Movsq | Mnemonic::Lodsq => 8,
        _ => return false,
    };
    let step = if frame.flags & DF == 0 { u64::from(size) } else { u64::from(size).wrapping_neg() };
    let advance = |frame: &mut TrapFrame, register| {
        let value = frame.register(register).wrapping_add(step);
        frame.set_register(register, value);
    };
    match instruction.mnemonic() {
        Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => {
            bus.write(offset, size, frame.register(RAX) & mask(size));
            advance(frame, RDI);
        }
        Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq => {
            let value = bus.read(offset, size) & mask(size);
            let old = if size >= 4 { 0 } else { frame.register(RAX) & !mask(size) };
            frame.set_register(RAX, old | value);
            advance(frame, RSI);
        }
        _ => {
            move_string(bus, offset, size, frame);
            advance(frame, RSI);
            advance(frame, RDI);
        }
    }
    if instruction.has_rep_prefix() {
        let left = frame.register(RCX).wrapping_sub(1);
        frame.set_register(RCX, left);
        if left != 0 {
            return true;
        }
    }
    frame.rip = instruction.next_ip();
    true
}

/// `movs`: one side is on the bus, the other ordinary memory. Which one faulted shows in the address.
fn move_string(bus: &dyn Bus, offset: u64, size: u8, frame: &TrapFrame) {
    // CAST: addresses.
    let (source, target) = (frame.register(6) as usize, frame.register(7) as usize);
    let width = usize::from(size);
    let mut bytes = [0; 8];
    if frame.address == source as u64 {
        let value = bus.read(offset, size);
        host::write(target, &value.to_le_bytes()[..width]);
    } else {
        host::read(source, &mut bytes[..width]);
        bus.write(offset, size, u64::from_le_bytes(bytes));
    }
}
