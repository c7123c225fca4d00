//! Variables that the kernel exports.
//!
//! An import of a variable is its address. Object types are pointers to opaque records; here each points to its own
//! name.

use std::sync::OnceLock;

/// A variable that holds a pointer to an object type, and the name behind it.
struct ObjectType {
    export: &'static str,
    kind: &'static str,
}

const TYPES: &[ObjectType] = &[
    ObjectType { export: "PsThreadType", kind: "Thread" },
    ObjectType { export: "PsProcessType", kind: "Process" },
    ObjectType { export: "ExEventObjectType", kind: "Event" },
    ObjectType { export: "ExSemaphoreObjectType", kind: "Semaphore" },
    ObjectType { export: "IoFileObjectType", kind: "File" },
    ObjectType { export: "IoDriverObjectType", kind: "Driver" },
    ObjectType { export: "IoDeviceObjectType", kind: "Device" },
    ObjectType { export: "CmKeyObjectType", kind: "Key" },
    ObjectType { export: "MmSectionObjectType", kind: "Section" },
];

struct Variables {
    /// One word per object type: the address of its name.
    types: Vec<usize>,
    fltused: u32,
    build: u16,
    processors: u8,
    /// Highest user address, for `MmUserProbeAddress` and `MmHighestUserAddress`.
    probe: usize,
    highest_user: usize,
    debugger: u8,
    no_debugger: u8,
}

fn variables_at() -> &'static Variables {
    static VARIABLES: OnceLock<Variables> = OnceLock::new();
    VARIABLES.get_or_init(|| Variables {
        types: TYPES.iter().map(|kind| kind.kind.as_ptr().expose_provenance()).collect(),
        fltused: 0x9875,
        build: 26100,
        processors: 2,
        probe: 0x7FFF_FFFF_0000,
        highest_user: 0x7FFF_FFFE_FFFF,
        debugger: 0,
        no_debugger: 1,
    })
}

/// Exported variables and their addresses.
pub(crate) fn variables() -> impl Iterator<Item = (&'static str, usize)> {
    let v = variables_at();
    let types =
        TYPES.iter().zip(&v.types).map(|(kind, word)| (kind.export, core::ptr::from_ref(word).expose_provenance()));
    types.chain([
        ("_fltused", (&raw const v.fltused).expose_provenance()),
        ("NtBuildNumber", (&raw const v.build).expose_provenance()),
        ("KeNumberProcessors", (&raw const v.processors).expose_provenance()),
        ("MmUserProbeAddress", (&raw const v.probe).expose_provenance()),
        ("MmHighestUserAddress", (&raw const v.highest_user).expose_provenance()),
        ("KdDebuggerEnabled", (&raw const v.debugger).expose_provenance()),
        ("KdDebuggerNotPresent", (&raw const v.no_debugger).expose_provenance()),
    ])
}

/// The object type that a driver passed (the contents of one of the variables): its name, if it named one.
pub(crate) fn object_type_name(object_type: usize) -> Option<&'static str> {
    let v = variables_at();
    let at = v.types.iter().position(|word| *word == object_type)?;
    Some(TYPES[at].kind)
}
