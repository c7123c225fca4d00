//! What services of Windows are for, by the prefixes of their names.

/// Prefixes, and what routines with them are for. Source: the chapters of Microsoft's reference *ntoskrnl and HAL
/// routines*; *WPP software tracing*.
const PURPOSES: &[(&str, &str)] = &[
    ("Etw", "tracing of events"),
    ("Wmi", "tracing by WPP, and WMI"),
    ("Dbg", "the kernel debugger"),
    ("Kd", "the kernel debugger"),
    ("Ex", "pool, work items, lists and resources"),
    ("Hal", "the hardware"),
    ("Interlocked", "lists without locks"),
    ("Io", "device objects, interrupts and requests"),
    ("Ke", "threads, waiting, time and processors"),
    ("Kf", "IRQL and locks"),
    ("Mm", "memory"),
    ("Ob", "objects and handles"),
    ("Po", "power"),
    ("Ps", "processes and threads"),
    ("Rtl", "the run-time library"),
    ("Se", "security"),
    ("Zw", "system services: registry, files, sections"),
    ("Nt", "system services: registry, files, sections"),
    ("Fs", "file systems"),
    ("Cc", "the file cache"),
    ("Cm", "the registry"),
    ("Tm", "transactions"),
];

/// An import, `dll!name`, with what it is for in words.
pub(super) fn with_purpose(import: &str) -> String {
    let (dll, name) = import.split_once('!').unwrap_or(("", import));
    let kernel = matches!(dll, "ntoskrnl.exe" | "hal.dll" | "ntkrnlpa.exe" | "ntkrnlmp.exe");
    let purpose = PURPOSES.iter().find(|(prefix, _)| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()))
    });
    match (kernel, purpose) {
        (true, Some((_, purpose))) => format!("{import} ({purpose})"),
        // Names of the C library are in lower case.
        (true, None) if name.starts_with(|first: char| first == '_' || first.is_ascii_lowercase()) => {
            format!("{import} (the C library)")
        }
        (true, None) => import.to_owned(),
        (false, _) => format!("{import} (of another driver or library)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_says_what_it_is_for() {
        for (import, purpose) in [
            ("ntoskrnl.exe!KeStallExecution", " (threads, waiting, time and processors)"),
            ("ntoskrnl.exe!_vsnwprintf", " (the C library)"),
            ("ntoskrnl.exe!WmiTraceMessage", " (tracing by WPP, and WMI)"),
            ("ntoskrnl.exe!Kernel", ""),
            ("watchdog.sys!WdLogEvent", " (of another driver or library)"),
        ] {
            assert_eq!(with_purpose(import), format!("{import}{purpose}"));
        }
    }
}
