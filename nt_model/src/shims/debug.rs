//! Printing, into the log and into buffers, and the debugger that is not there.

use crate::debug_print;
use crate::kernel::Machine;
use crate::records::status::{self, NtStatus};
use crate::routines;
use crate::rules_nt::NT_EXCEPTION;
use crate::shim::{self, In, VaList, variadic_shims};
use crate::shims;

variadic_shims! {
    pub(crate) table DEBUG_VARIADIC;

    fn DbgPrint = "DbgPrint"(m, format: In<u8>; arguments from "rdx" at 16) -> NtStatus {
        let _service = m.service(&routines::DBG_PRINT, [format.address() as u64]);
        let mut arguments = arguments;
        m.print_formatted("", format, &mut arguments);
        status::SUCCESS
    }

    fn DbgPrintEx = "DbgPrintEx"(m, component: u32, level: u32, format: In<u8>; arguments from "r9" at 32) -> NtStatus {
        let _service = m.service(&routines::DBG_PRINT_EX, [component.into(), level.into(), format.address() as u64]);
        let mut arguments = arguments;
        m.print_formatted("", format, &mut arguments);
        status::SUCCESS
    }

    fn SnPrintf = "_snprintf"(_m, buffer: usize, count: usize, format: In<u8>; arguments from "r9" at 32) -> i32 {
        let mut arguments = arguments;
        let text = debug_print::format_message(&shim::read_c_string(format.address()), &mut arguments);
        print_to(buffer, count, &text)
    }

    fn SPrintf = "sprintf"(_m, buffer: usize, format: In<u8>; arguments from "r8" at 24) -> i32 {
        let mut arguments = arguments;
        let text = debug_print::format_message(&shim::read_c_string(format.address()), &mut arguments);
        print_to(buffer, text.len() + 1, &text)
    }

    fn SnWPrintf = "_snwprintf"(_m, buffer: usize, count: usize, format: In<u16>; arguments from "r9" at 32) -> i32 {
        let mut arguments = arguments;
        let text = debug_print::format_wide(&shim::read_wide_string(format.address()), &mut arguments);
        print_wide_to(buffer, count, &text)
    }

    // The machine has no debugger at which an answer could be typed.
    fn DbgPrompt = "DbgPrompt"(m, prompt: In<u8>, _response: usize; _arguments from "r8" at 24) -> u32 {
        m.debug_print(&String::from_utf8_lossy(&shim::read_c_string(prompt.address())));
        0
    }
}

shims! {
    pub(crate) table DEBUG;

    fn VDbgPrintEx = "vDbgPrintEx"(m, component: u32, level: u32, format: In<u8>, arguments: In<u64>) -> NtStatus {
        let _service = m.service(&routines::VDBG_PRINT_EX, [component.into(), level.into(), format.address() as u64]);
        m.print_formatted("", format, &mut VaList::from_in(arguments));
        status::SUCCESS
    }

    fn VDbgPrintExWithPrefix = "vDbgPrintExWithPrefix"(
        m, prefix: In<u8>, component: u32, level: u32, format: In<u8>, arguments: In<u64>,
    ) -> NtStatus {
        let _service = m.service(&routines::VDBG_PRINT_EX, [component.into(), level.into(), format.address() as u64]);
        let prefix = String::from_utf8_lossy(&shim::read_c_string(prefix.address())).into_owned();
        m.print_formatted(&prefix, format, &mut VaList::from_in(arguments));
        status::SUCCESS
    }

    fn VsnPrintf = "_vsnprintf"(_m, buffer: usize, count: usize, format: In<u8>, arguments: In<u64>) -> i32 {
        let mut arguments = VaList::from_in(arguments);
        print_to(buffer, count, &debug_print::format_message(&shim::read_c_string(format.address()), &mut arguments))
    }

    fn VsnWPrintf = "_vsnwprintf"(_m, buffer: usize, count: usize, format: In<u16>, arguments: In<u64>) -> i32 {
        let mut arguments = VaList::from_in(arguments);
        let text = debug_print::format_wide(&shim::read_wide_string(format.address()), &mut arguments);
        print_wide_to(buffer, count, &text)
    }

    // The machine has no kernel debugger: a break point is an exception that goes unhandled. Where broken rules are
    // collected, the driver goes on behind it, as under a debugger.
    fn DbgBreakPoint(m) {
        break_point(m, "DbgBreakPoint");
    }

    fn DbgBreakPointWithStatus(m, status: u32) {
        break_point(m, &format!("DbgBreakPointWithStatus({status:#x})"));
    }

    fn KdRefreshDebuggerNotPresent(_m) -> u8 {
        1
    }
}

fn break_point(m: &Machine, what: &str) {
    m.rules.check(&NT_EXCEPTION, false, || format!("{what}, and no kernel debugger is there"));
}

/// As `_snprintf` does: a terminator only where there is room, -1 when the text was cut.
fn print_to(buffer: usize, count: usize, text: &[u8]) -> i32 {
    let fits = text.len() <= count;
    let mut bytes = text[..text.len().min(count)].to_vec();
    if bytes.len() < count {
        bytes.push(0);
    }
    shim::write_bytes(buffer, &bytes);
    // CAST: formatted texts are short.
    if fits { text.len() as i32 } else { -1 }
}

/// As `_snwprintf` does; `count` is in characters.
fn print_wide_to(buffer: usize, count: usize, text: &[u16]) -> i32 {
    let fits = text.len() <= count;
    let mut units = text[..text.len().min(count)].to_vec();
    if units.len() < count {
        units.push(0);
    }
    let bytes: Vec<u8> = units.into_iter().flat_map(u16::to_le_bytes).collect();
    shim::write_bytes(buffer, &bytes);
    // CAST: formatted texts are short.
    if fits { text.len() as i32 } else { -1 }
}
