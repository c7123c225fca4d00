//! What each C name is in Rust, and how large.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::ctype::CType;
use crate::facts::CallbackKind;
use crate::facts::Facts;
use crate::facts::MemberKind;
use crate::facts::Record;
use crate::tsv::Error;

/// What kind of value a type holds; decides which accessors it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// An integer of the machine, signed or not.
    Integer {
        /// Whether it is signed.
        signed: bool,
    },
    /// An open enumeration.
    Enum {
        /// The integer in it.
        base: &'static str,
    },
    /// A float or a pointer to data.
    Scalar,
    /// A structure, a union or an array.
    Aggregate,
    /// A function pointer.
    Function,
}

/// A Rust type with its layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RustType {
    /// How to write it.
    pub text: String,
    /// Size in bytes.
    pub size: u32,
    /// Natural alignment in bytes.
    pub align: u32,
    /// What it holds.
    pub class: Class,
}

impl RustType {
    fn new(text: impl Into<String>, size: u32, align: u32, class: Class) -> Self {
        Self { text: text.into(), size, align, class }
    }

    fn pointer(text: impl Into<String>) -> Self {
        Self::new(text, 8, 8, Class::Scalar)
    }

    /// The unsigned integer of `size` bytes.
    pub fn unsigned(size: u32) -> Self {
        Self::new(format!("u{}", size * 8), size, size, Class::Integer { signed: false })
    }

    /// Raw bytes.
    pub fn bytes(size: u32) -> Self {
        Self::new(format!("[u8; {size}]"), size, 1, Class::Aggregate)
    }
}

/// C names that are plain Rust types: name, Rust, size.
const INTEGERS: &[(&str, &str, u32)] = &[
    ("unsigned char", "u8", 1),
    ("unsigned int", "u32", 4),
    ("unsigned long", "u32", 4),
    ("char", "i8", 1),
    ("CHAR", "i8", 1),
    ("UCHAR", "u8", 1),
    ("BYTE", "u8", 1),
    ("UINT8", "u8", 1),
    ("BOOLEAN", "BOOLEAN", 1),
    ("KPROCESSOR_MODE", "KPROCESSOR_MODE", 1),
    ("SHORT", "i16", 2),
    ("INT16", "i16", 2),
    ("USHORT", "u16", 2),
    ("UINT16", "u16", 2),
    ("WORD", "u16", 2),
    ("WCHAR", "WCHAR", 2),
    ("INT", "i32", 4),
    ("LONG", "i32", 4),
    ("BOOL", "BOOL", 4),
    ("UINT", "u32", 4),
    ("UINT32", "u32", 4),
    ("ULONG", "u32", 4),
    ("DWORD", "u32", 4),
    ("ACCESS_MASK", "ACCESS_MASK", 4),
    ("LONGLONG", "i64", 8),
    ("LONG64", "i64", 8),
    ("ULONGLONG", "u64", 8),
    ("ULONG64", "u64", 8),
    ("UINT64", "u64", 8),
    ("SIZE_T", "usize", 8),
    ("UINT_PTR", "usize", 8),
    ("ULONG_PTR", "usize", 8),
];

/// Pointer typedefs of the NT headers: name, Rust.
const POINTERS: &[(&str, &str)] = &[
    ("HANDLE", "HANDLE"),
    ("HDC", "HDC"),
    ("HWND", "HWND"),
    ("PVOID", "*mut c_void"),
    ("LPVOID", "*mut c_void"),
    ("PHANDLE", "*mut HANDLE"),
    ("PBOOLEAN", "*mut BOOLEAN"),
    ("PUCHAR", "*mut u8"),
    ("PULONG", "*mut u32"),
    ("PSIZE_T", "*mut usize"),
    ("PCWSTR", "*const WCHAR"),
    ("LPCGUID", "*const GUID"),
];

/// Types written by hand in `nt_types.rs` that records hold by value or through `P…` names: name, size, alignment,
/// class. Size 0 marks an opaque one.
const BY_HAND: &[(&str, u32, u32, Class)] = &[
    ("NTSTATUS", 4, 4, Class::Scalar),
    ("DEVICE_POWER_STATE", 4, 4, Class::Enum { base: "i32" }),
    ("KWAIT_REASON", 4, 4, Class::Enum { base: "i32" }),
    ("MEMORY_CACHING_TYPE", 4, 4, Class::Enum { base: "i32" }),
    ("POWER_ACTION", 4, 4, Class::Enum { base: "i32" }),
    ("CLSID", 16, 4, Class::Aggregate),
    ("GUID", 16, 4, Class::Aggregate),
    ("INTERFACE", 32, 8, Class::Aggregate),
    ("IO_STATUS_BLOCK", 16, 8, Class::Aggregate),
    ("LARGE_INTEGER", 8, 8, Class::Aggregate),
    ("LUID", 8, 4, Class::Aggregate),
    ("OBJECT_ATTRIBUTES", 48, 8, Class::Aggregate),
    ("PALETTEENTRY", 4, 1, Class::Aggregate),
    ("POINT", 8, 4, Class::Aggregate),
    ("QUERY_INTERFACE", 32, 8, Class::Aggregate),
    ("RECT", 16, 4, Class::Aggregate),
    ("RECTL", 16, 4, Class::Aggregate),
    ("ULARGE_INTEGER", 8, 8, Class::Aggregate),
    ("UNICODE_STRING", 16, 8, Class::Aggregate),
    ("ACPI_EVAL_INPUT_BUFFER_COMPLEX", 0, 1, Class::Aggregate),
    ("ACPI_EVAL_OUTPUT_BUFFER", 0, 1, Class::Aggregate),
    ("CM_PARTIAL_RESOURCE_DESCRIPTOR", 20, 4, Class::Aggregate),
    ("CM_RESOURCE_LIST", 40, 4, Class::Aggregate),
    ("DEVICE_OBJECT", 0, 1, Class::Aggregate),
    ("DRIVER_OBJECT", 0, 1, Class::Aggregate),
    ("MDL", 0, 1, Class::Aggregate),
    ("PCI_DEVICE_PRESENCE_PARAMETERS", 0, 1, Class::Aggregate),
    ("VIDEO_REQUEST_PACKET", 0, 1, Class::Aggregate),
];

/// Function-pointer types written by hand in `nt_types.rs`: the headers declare them, the callback table does not.
const FUNCTIONS_BY_HAND: &[&str] = &[
    "FARPROC",
    "PINTERFACE_REFERENCE",
    "PINTERFACE_DEREFERENCE",
    "PKSYNCHRONIZE_ROUTINE",
    "PFND3DKMT_BUDGETCHANGENOTIFICATIONCALLBACK",
    "PFND3DKMT_TRIMNOTIFICATIONCALLBACK",
];

/// Function-pointer types of record members of which no table has the signature.
pub const UNKNOWN_SIGNATURES: &[&str] = &[
    "PFND3DKMT_ENABLEPROCESSDEBUGBLOBCOLLECTION",
    "PFND3DKMT_DISABLEPROCESSDEBUGBLOBCOLLECTION",
    "PFND3DKMT_MAPPROCESSDEBUGBLOB",
    "PFND3DKMT_UNMAPPROCESSDEBUGBLOB",
];

/// The same for the 28000 kits.
pub const UNKNOWN_SIGNATURES_28000: &[&str] = &[
    "DXGKDDI_I2C_TRANSMIT_AND_RECEIVE_DATA_FROM_DISPLAY",
    "PDXGKDDI_QUERYFEATURESUPPORT2",
    "PDXGKDDI_QUERY_MONITOR_DESCRIPTOR",
    "DXGKDDI_WAITWAKE_ARMING",
    "DXGKDDI_WAITWAKE_DISARMING",
    "DXGKDDI_PANEL_BUFFER_CONTROL_GET_CAPABILITIES",
    "DXGKDDI_PANEL_BUFFER_CONTROL_SET_OVERRIDE_STATE",
    "DXGKDDI_PANEL_BUFFER_CONTROL_GET_OVERRIDE_RESULT",
    "DXGKDDI_PANEL_BUFFER_CONTROL_SET_AUTOMATIC_POLICY",
    "PFND3DKMT_ACQUIREEXCLUSIVEENGINEACCESS",
    "PFND3DKMT_CHECKENGINEACCESS",
];

/// The names that the generated code of one module can use.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    types: BTreeMap<String, RustType>,
    opaque: BTreeSet<String>,
}

impl Scope {
    /// The names of the main modules.
    pub fn main(facts: &Facts) -> Result<Self, Error> {
        let mut scope = Self::default();
        for &(name, rust, size) in INTEGERS {
            let signed = matches!(rust.as_bytes()[0], b'i' | b'K') || rust == "BOOL";
            scope.add(name, RustType::new(rust, size, size, Class::Integer { signed }));
        }
        scope.add("float", RustType::new("f32", 4, 4, Class::Scalar));
        scope.add("FLOAT", RustType::new("f32", 4, 4, Class::Scalar));
        for &(name, rust) in POINTERS {
            scope.add(name, RustType::pointer(rust));
        }
        for &(name, size, align, class) in BY_HAND {
            if size == 0 {
                scope.opaque.insert(name.to_owned());
            } else {
                scope.add(name, RustType::new(name, size, align, class));
            }
        }
        for &name in FUNCTIONS_BY_HAND.iter().chain(UNKNOWN_SIGNATURES) {
            scope.add_function(name);
        }
        scope.add_records(&facts.records);
        for enumeration in &facts.enums {
            let (size, base) = enum_base(facts, &enumeration.name)?;
            scope.add(&enumeration.name, RustType::new(&enumeration.name, size, size, Class::Enum { base }));
        }
        for callback in facts.callbacks.iter().filter(|callback| !is_removed(&callback.source)) {
            for name in pointer_names(callback.kind, &callback.name) {
                scope.add_function(&name);
            }
        }
        // Aliases last, and until nothing changes: one may stand for another that comes later.
        let removed = removed_pointers(facts);
        let mut open: Vec<_> = facts.aliases.iter().filter(|alias| !removed.contains(&alias.name)).collect();
        while !open.is_empty() {
            let before = open.len();
            let mut error = None;
            open.retain(|alias| match scope.add_alias(&alias.name, &alias.target) {
                Ok(()) => false,
                Err(why) => {
                    error = Some(why.at(&alias.place));
                    true
                }
            });
            if let (true, Some(error)) = (open.len() == before, error) {
                return Err(error);
            }
        }
        Ok(scope)
    }

    /// A copy in which `records` and `enums` take the place of what had their names.
    pub fn with(&self, records: &[Record], enums: &[&str]) -> Self {
        let mut scope = self.clone();
        scope.add_records(records);
        for name in enums {
            scope.types.insert((*name).to_owned(), RustType::new(*name, 4, 4, Class::Enum { base: "i32" }));
        }
        scope
    }

    fn add(&mut self, name: &str, rust: RustType) {
        self.types.insert(name.to_owned(), rust);
    }

    fn add_records(&mut self, records: &[Record]) {
        for record in records {
            let rust = RustType::new(&record.name, record.size, record.align, Class::Aggregate);
            if record.tag.starts_with('_') {
                self.add(&record.tag, rust.clone());
            }
            self.add(&record.name, rust);
        }
    }

    /// Makes `name` a function-pointer type of this scope.
    pub fn add_function(&mut self, name: &str) {
        self.add(name, RustType::new(name, 8, 8, Class::Function));
    }

    fn add_alias(&mut self, name: &str, target: &CType) -> Result<(), Error> {
        if self.types.contains_key(name) {
            return Ok(());
        }
        if let CType::Pointer { to, .. } = target
            && let CType::Named(pointee) = to.as_ref()
            && pointee.ends_with("__")
        {
            self.opaque.insert(pointee.clone());
        }
        let target = self.resolve(target)?;
        self.add(name, RustType { text: name.to_owned(), ..target });
        Ok(())
    }

    /// The opaque types that handle typedefs point to (`D3DKMDT_HVIDPN__`).
    pub fn handle_targets(&self) -> impl Iterator<Item = &str> {
        self.opaque.iter().map(String::as_str).filter(|name| name.ends_with("__"))
    }

    /// The type called `name`, if it has a size.
    pub fn lookup(&self, name: &str) -> Option<RustType> {
        if let Some(found) = self.types.get(name) {
            return Some(found.clone());
        }
        // A tag: `_DXGK_CHILD_STATUS`.
        if let Some(found) = name.strip_prefix('_').and_then(|plain| self.types.get(plain)) {
            return Some(found.clone());
        }
        // The usual pointer typedef: `PDXGK_CHILD_STATUS`.
        let pointee = name.strip_prefix('P')?;
        (self.types.contains_key(pointee) || self.opaque.contains(pointee))
            .then(|| RustType::pointer(format!("*mut {pointee}")))
    }

    /// The Rust type of `ctype`.
    pub fn resolve(&self, ctype: &CType) -> Result<RustType, Error> {
        Ok(match ctype {
            CType::Named(name) => {
                self.lookup(name).ok_or_else(|| Error::new(format!("nothing is known of the type `{name}`")))?
            }
            CType::Array(element, count) => {
                let element = self.resolve(element)?;
                let text = format!("[{}; {count}]", element.text);
                let class = if element.class == Class::Function { Class::Function } else { Class::Aggregate };
                RustType::new(text, element.size * count, element.align, class)
            }
            CType::Pointer { to, constant } => {
                let pointee = match to.as_ref() {
                    CType::Named(name) if is_void(name) => "c_void".to_owned(),
                    CType::Named(name) if self.opaque.contains(name) => name.clone(),
                    other => self.resolve(other)?.text,
                };
                RustType::pointer(format!("*{} {pointee}", if *constant { "const" } else { "mut" }))
            }
            CType::Function { returns, parameters } => {
                let parameters =
                    parameters.iter().map(|p| Ok(self.resolve(p)?.text)).collect::<Result<Vec<_>, Error>>()?;
                let text = format!("Option<{}>", self.function(returns, &parameters)?);
                RustType::new(text, 8, 8, Class::Function)
            }
        })
    }

    /// The type of a function's result, if it has one.
    pub fn returned(&self, returns: &CType) -> Result<Option<RustType>, Error> {
        match returns {
            CType::Named(name) if is_void(name) => Ok(None),
            other => self.resolve(other).map(Some),
        }
    }

    /// `winfn!(fn(parameters) -> returns)`.
    pub fn function(&self, returns: &CType, parameters: &[String]) -> Result<String, Error> {
        let arrow = self.returned(returns)?.map(|rust| format!(" -> {}", rust.text)).unwrap_or_default();
        Ok(format!("winfn!(fn({}){arrow})", parameters.join(", ")))
    }
}

/// `true` for C's `void`.
fn is_void(name: &str) -> bool {
    name.eq_ignore_ascii_case("void")
}

/// `true` where the callback table says that the callback is gone in 26100.
pub fn is_removed(source: &str) -> bool {
    source.contains("REMOVED")
}

/// The pointer types of the callbacks that are gone in 26100.
fn removed_pointers(facts: &Facts) -> BTreeSet<String> {
    let removed = facts.callbacks.iter().filter(|callback| is_removed(&callback.source));
    removed.flat_map(|callback| pointer_names(callback.kind, &callback.name)).collect()
}

/// The names of the nullable pointer types that a callback brings.
pub fn pointer_names(kind: CallbackKind, name: &str) -> Vec<String> {
    match kind {
        CallbackKind::Pointer => vec![name.to_owned()],
        CallbackKind::Function => vec![format!("P{name}")],
        CallbackKind::Export => name
            .strip_prefix("D3DKMT")
            .map(|rest| format!("PFND3DKMT_{}", rest.to_ascii_uppercase()))
            .into_iter()
            .collect(),
    }
}

/// The size of an enumeration and the integer in it: `i32`, unless a typedef or a record member says otherwise.
pub fn enum_base(facts: &Facts, name: &str) -> Result<(u32, &'static str), Error> {
    let alias = facts.aliases.iter().find(|alias| alias.name == name);
    let (size, base) = match alias.map(|alias| alias.spelling.as_str()) {
        Some("UINT8" | "BYTE") => (1, "u8"),
        Some("UINT") => (4, "u32"),
        _ => (4, "i32"),
    };
    let wanted = CType::Named(name.to_owned());
    for member in facts.records.iter().flat_map(|record| &record.members) {
        let MemberKind::Typed(ctype) = &member.kind else { continue };
        if *ctype == wanted && member.size != size {
            return Err(
                Error::new(format!("`{name}` has {} bytes here, {size} by the aliases", member.size)).at(&member.place)
            );
        }
    }
    Ok((size, base))
}
