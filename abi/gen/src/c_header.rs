//! The tables as one C header, for drivers in C or C++ that are built without the WDK.
//!
//! What `ntddk.h` declares (of mingw-w64, or of the WDK) is taken from there; the few names of `windef.h` and
//! `wingdi.h`, which do not go with it, are declared in the header. Layouts follow from C's own rules under
//! `#pragma pack` with the alignment of the table; whether they come out is asked of a compiler ([`crate::verify`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::ctype::CType;
use crate::facts::{CallbackKind, Facts, MemberKind, Record};
use crate::scope::{UNKNOWN_SIGNATURES, enum_base, is_removed, pointer_names};
use crate::tree::{self, Aggregate, Node};
use crate::tsv::Error;

/// What no header of the kernel declares, or not under this name.
const PROLOGUE: &str = "\
/* The Windows display driver interface of WDDM 3.2, for drivers that are built without the WDK. Generated from tables
   of facts: names, types, offsets and values. Include it, or one of the headers of Microsoft's names beside it, in
   place of d3dkmddi.h and dispmprt.h. */
#pragma once
#if defined(__clang__) && defined(__MINGW32__)
/* mingw-w64 and clang both define these functions: mingw-w64 is told that it has. */
#define __INTRINSIC_DEFINED___cpuidex
#define __INTRINSIC_DEFINED_InterlockedBitTestAndSet
#define __INTRINSIC_DEFINED_InterlockedBitTestAndReset
#endif
#include <ntddk.h>
#include <guiddef.h>

#ifndef _WINDEF_
typedef unsigned char BYTE, UINT8;
typedef unsigned short WORD, UINT16;
typedef unsigned int UINT, UINT32;
typedef unsigned long DWORD;
typedef unsigned long long UINT64;
typedef int INT, BOOL;
typedef float FLOAT;
typedef void *LPVOID;
typedef struct HDC__ *HDC;
typedef struct HWND__ *HWND;
typedef INT_PTR (*FARPROC)(void);
typedef struct tagRECT { LONG left, top, right, bottom; } RECT, *PRECT;
typedef struct _RECTL { LONG left, top, right, bottom; } RECTL, *PRECTL;
typedef struct tagPOINT { LONG x, y; } POINT, *PPOINT;
#endif
#ifndef _WINGDI_
typedef struct tagPALETTEENTRY { BYTE peRed, peGreen, peBlue, peFlags; } PALETTEENTRY;
#endif
typedef struct _QUERY_INTERFACE {
    const GUID *InterfaceType;
    USHORT Size, Version;
    PINTERFACE Interface;
    PVOID InterfaceSpecificData;
} QUERY_INTERFACE, *PQUERY_INTERFACE;
typedef struct _VIDEO_REQUEST_PACKET VIDEO_REQUEST_PACKET, *PVIDEO_REQUEST_PACKET;
typedef struct _ACPI_EVAL_INPUT_BUFFER_COMPLEX ACPI_EVAL_INPUT_BUFFER_COMPLEX, *PACPI_EVAL_INPUT_BUFFER_COMPLEX;
typedef struct _ACPI_EVAL_OUTPUT_BUFFER ACPI_EVAL_OUTPUT_BUFFER, *PACPI_EVAL_OUTPUT_BUFFER;
typedef void (*PFND3DKMT_BUDGETCHANGENOTIFICATIONCALLBACK)(void *, const void *);
typedef void (*PFND3DKMT_TRIMNOTIFICATIONCALLBACK)(void *, void *);

#ifdef __cplusplus
extern \"C\" {
#endif
/* Bit-fields as Microsoft's compiler lays them out. */
#if defined(__clang__)
#pragma ms_struct on
#endif
";

const EPILOGUE: &str = "
#if defined(__clang__)
#pragma ms_struct reset
#endif

/* displib's, one of which a driver's DriverEntry calls. */
NTSTATUS DxgkInitialize(PDRIVER_OBJECT DriverObject, PUNICODE_STRING RegistryPath, DRIVER_INITIALIZATION_DATA *Table);
NTSTATUS DxgkInitializeDisplayOnlyDriver(PDRIVER_OBJECT DriverObject, PUNICODE_STRING RegistryPath,
                                         KMDDOD_INITIALIZATION_DATA *Table);
#ifdef __cplusplus
}
#endif
";

/// Names that the kernel's headers have, and tables have as well.
const OF_NTDDK: [&str; 6] = ["BYTE", "DWORD", "UINT", "PHYSICAL_ADDRESS", "POBJECT_ATTRIBUTES", "PUNICODE_STRING"];

/// What a name of the tables is.
#[derive(Clone, Copy)]
enum Item<'a> {
    Alias(&'a str, &'a CType),
    Callback(usize),
    Record(&'a Record),
    Unknown(&'a str),
}

struct Writer<'a> {
    facts: &'a Facts,
    /// What the tables declare, by name.
    items: BTreeMap<String, Item<'a>>,
    records: BTreeMap<&'a str, &'a Record>,
    enums: BTreeSet<&'a str>,
    done: BTreeSet<String>,
    text: String,
}

/// Writes the header.
///
/// # Errors
/// A table contradicts itself, or declares something in a circle.
pub fn header(facts: &Facts) -> Result<String, Error> {
    let mut writer = Writer {
        facts,
        items: BTreeMap::new(),
        records: facts.records.iter().map(|record| (record.name.as_str(), record)).collect(),
        enums: facts.enums.iter().map(|known| known.name.as_str()).collect(),
        done: BTreeSet::new(),
        text: PROLOGUE.to_owned(),
    };
    writer.constants()?;
    writer.index();
    writer.forward();
    let names: Vec<String> = writer.order();
    for name in names {
        writer.emit(&name)?;
    }
    writer.guids();
    writer.text.push_str(EPILOGUE);
    Ok(writer.text)
}

impl<'a> Writer<'a> {
    fn constants(&mut self) -> Result<(), Error> {
        self.text.push('\n');
        for constant in &self.facts.macros {
            // A driver may say before the header which version it is written for, as with Microsoft's.
            if constant.name == "DXGKDDI_INTERFACE_VERSION" {
                let _ = writeln!(self.text, "#ifndef {0}\n#define {0} {1:#x}\n#endif", constant.name, constant.value);
                continue;
            }
            let _ = match constant.value {
                value if value < 0 => writeln!(self.text, "#define {} ({value})", constant.name),
                value if value >> 32 != 0 => writeln!(self.text, "#define {} {value:#x}ull", constant.name),
                value => writeln!(self.text, "#define {} {value:#x}", constant.name),
            };
        }
        let mut values: BTreeMap<&str, &str> = BTreeMap::new();
        for known in &self.facts.enums {
            // Tables that were made from several sources have some enumerations under two names.
            let first = known.values.first().map_or("", |value| value.name.as_str());
            if let Some(other) = values.get(first) {
                let _ = writeln!(self.text, "typedef {other} {0}, *P{0};", known.name);
                continue;
            }
            values.extend(known.values.iter().map(|value| (value.name.as_str(), known.name.as_str())));
            let (size, base) = enum_base(self.facts, &known.name)?;
            let unnamed = known.values.iter().any(|value| value.name == known.name);
            let _ = match (size, base) {
                (4, "i32") if !unnamed => writeln!(self.text, "\ntypedef enum _{} {{", known.name),
                _ => writeln!(self.text, "\nenum {{"),
            };
            for value in &known.values {
                // CAST: the bits of C's int.
                let _ = writeln!(self.text, "    {} = {},", value.name, value.value as i32);
            }
            let _ = match (size, base) {
                // One without a name of its own.
                _ if unnamed => writeln!(self.text, "}};"),
                (4, "i32") => writeln!(self.text, "}} {0}, *P{0};", known.name),
                (1, _) => writeln!(self.text, "}};\ntypedef UINT8 {0}, *P{0};", known.name),
                _ => writeln!(self.text, "}};\ntypedef UINT {0}, *P{0};", known.name),
            };
        }
        Ok(())
    }

    fn index(&mut self) {
        let facts = self.facts;
        for alias in &facts.aliases {
            if !OF_NTDDK.contains(&alias.name.as_str()) && !self.enums.contains(alias.name.as_str()) {
                self.items.insert(alias.name.clone(), Item::Alias(&alias.name, &alias.target));
            }
        }
        for (number, callback) in facts.callbacks.iter().enumerate().filter(|(_, known)| !is_removed(&known.source)) {
            for name in pointer_names(callback.kind, &callback.name).into_iter().chain([callback.name.clone()]) {
                self.items.insert(name, Item::Callback(number));
            }
        }
        for name in UNKNOWN_SIGNATURES {
            self.items.insert((*name).to_owned(), Item::Unknown(name));
        }
        for record in &facts.records {
            self.items.insert(record.name.clone(), Item::Record(record));
        }
        // An alias of what is gone.
        let removed: BTreeSet<String> = facts
            .callbacks
            .iter()
            .filter(|known| is_removed(&known.source))
            .flat_map(|known| pointer_names(known.kind, &known.name))
            .collect();
        self.items.retain(|name, _| !removed.contains(name));
    }

    fn order(&self) -> Vec<String> {
        let facts = self.facts;
        let aliases = facts.aliases.iter().map(|alias| alias.name.clone());
        let callbacks = facts.callbacks.iter().map(|callback| callback.name.clone());
        aliases.chain(callbacks).chain(facts.records.iter().map(|record| record.name.clone())).collect()
    }

    /// Declares each record, and the pointer to it where nothing else has that name.
    fn forward(&mut self) {
        self.text.push('\n');
        for record in &self.facts.records {
            let (kind, tag) = (kind(record.union), tag(record));
            let _ = write!(self.text, "typedef {kind} {tag} {}", record.name);
            let pointer = format!("P{}", record.name);
            let taken = self.items.contains_key(&pointer) || self.enums.contains(pointer.as_str());
            let _ = if taken { writeln!(self.text, ";") } else { writeln!(self.text, ", *{pointer};") };
        }
        // The tags of what records only point to.
        for alias in &self.facts.aliases {
            if let CType::Pointer { to, .. } = &alias.target
                && let CType::Named(to) = to.as_ref()
                && to.ends_with("__")
            {
                let _ = writeln!(self.text, "typedef struct {to} {to};");
            }
        }
    }

    /// How a name is written where it is used.
    fn name(&self, name: &str) -> String {
        if name.eq_ignore_ascii_case("void") {
            return "void".to_owned();
        }
        match name.strip_prefix('_').filter(|plain| self.records.contains_key(plain) || self.enums.contains(plain)) {
            Some(plain) => plain.to_owned(),
            None => match self.facts.records.iter().find(|record| record.tag == name) {
                Some(record) => record.name.clone(),
                None => name.to_owned(),
            },
        }
    }

    /// A declaration of `what` as this type.
    fn declare(&self, ctype: &CType, what: &str) -> String {
        match ctype {
            CType::Named(name) => format!("{} {what}", self.name(name)).trim_end().to_owned(),
            CType::Array(element, count) => self.declare(element, &format!("{what}[{count}]")),
            CType::Pointer { to, constant } => match to.as_ref() {
                CType::Named(_) if *constant => format!("const {}", self.declare(to, &format!("*{what}"))),
                CType::Named(_) => self.declare(to, &format!("*{what}")),
                _ if *constant => self.declare(to, &format!("const *{what}")),
                _ => self.declare(to, &format!("*{what}")),
            },
            CType::Function { returns, parameters } => {
                let parameters: Vec<_> = parameters.iter().map(|parameter| self.declare(parameter, "")).collect();
                self.declare(returns, &format!("(*{what})({})", or_void(&parameters)))
            }
        }
    }

    /// Writes what the type needs to be used. `whole`: by value.
    fn need(&mut self, ctype: &CType, whole: bool) -> Result<(), Error> {
        match ctype {
            CType::Named(name) => {
                let name = self.name(name);
                match self.items.get(&name) {
                    Some(Item::Record(_)) if !whole => Ok(()),
                    Some(_) => self.emit(&name),
                    None => Ok(()),
                }
            }
            CType::Array(element, _) => self.need(element, whole),
            CType::Pointer { to, .. } => self.need(to, false),
            CType::Function { returns, parameters } => {
                self.need(returns, false)?;
                parameters.iter().try_for_each(|parameter| self.need(parameter, false))
            }
        }
    }

    fn emit(&mut self, name: &str) -> Result<(), Error> {
        let Some(item) = self.items.get(name).copied() else { return Ok(()) };
        if !self.done.insert(name.to_owned()) {
            return Ok(());
        }
        match item {
            Item::Alias(name, target) => {
                // A record's own name for a tag.
                let whole = matches!(target, CType::Named(to) if self.name(to) == name);
                if !whole {
                    self.need(target, false)?;
                    let declared = self.declare(target, name);
                    let _ = writeln!(self.text, "typedef {declared};");
                }
                Ok(())
            }
            Item::Unknown(name) => {
                let _ = writeln!(self.text, "typedef void (*{name})(void); /* its parameters are not known */");
                Ok(())
            }
            Item::Callback(number) => self.callback(number),
            Item::Record(record) => self.record(record),
        }
    }

    fn callback(&mut self, number: usize) -> Result<(), Error> {
        let callback = &self.facts.callbacks[number];
        let names = pointer_names(callback.kind, &callback.name);
        self.done.insert(callback.name.clone());
        self.done.extend(names.iter().cloned());
        self.need(&callback.returns, false)?;
        for parameter in &callback.parameters {
            self.need(&parameter.ctype, false)?;
        }
        let parameters: Vec<_> =
            callback.parameters.iter().map(|parameter| self.declare(&parameter.ctype, &parameter.name)).collect();
        let parameters = or_void(&parameters);
        let name = &callback.name;
        match callback.kind {
            CallbackKind::Function => {
                let declared = self.declare(&callback.returns, &format!("{name}({parameters})"));
                let _ = writeln!(self.text, "typedef {declared};\ntypedef {name} *{};", names[0]);
            }
            CallbackKind::Pointer => {
                let declared = self.declare(&callback.returns, &format!("(*{name})({parameters})"));
                let _ = writeln!(self.text, "typedef {declared};");
            }
            // What user mode calls has no place in a driver; the pointers are in records.
            CallbackKind::Export => {
                for pointer in names {
                    let declared = self.declare(&callback.returns, &format!("(*{pointer})({parameters})"));
                    let _ = writeln!(self.text, "typedef {declared};");
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, record: &Record) -> Result<(), Error> {
        for member in &record.members {
            if let MemberKind::Typed(ctype) = &member.kind {
                self.need(ctype, true).map_err(|error| error.at(&member.place))?;
            }
        }
        let root = tree::build(record)?;
        let (kind, tag) = (kind(record.union), tag(record));
        let mut body = String::new();
        self.members(&root, 1, &mut body);
        let align = record.align;
        let _ = writeln!(self.text, "\n#pragma pack(push, {align})\n{kind} {tag} {{\n{body}}};\n#pragma pack(pop)");
        Ok(())
    }

    fn members(&self, aggregate: &Aggregate<'_>, depth: usize, body: &mut String) {
        let indent = "    ".repeat(depth);
        // Of the bit-fields' storage unit: where it is, its size, and the first bit that is free.
        let mut unit: Option<(u32, u32, u32)> = None;
        for node in &aggregate.children {
            match node {
                Node::Leaf(name, row) => {
                    let MemberKind::Typed(ctype) = &row.kind else { continue };
                    let Some((first, width)) = row.bits else {
                        unit = None;
                        let _ = writeln!(body, "{indent}{};", self.declare(ctype, name));
                        continue;
                    };
                    let free = match unit {
                        Some((offset, size, free)) if (offset, size) == (row.offset, row.size) => free,
                        _ => 0,
                    };
                    if !aggregate.union && first > free {
                        let _ = writeln!(body, "{indent}{} : {};", self.declare(ctype, ""), first - free);
                    }
                    let _ = writeln!(body, "{indent}{} {name} : {width};", self.declare(ctype, ""));
                    unit = Some((row.offset, row.size, first + width));
                }
                Node::Aggregate(inner) => {
                    unit = None;
                    let _ = writeln!(body, "{indent}{} {{", kind(inner.union));
                    self.members(inner, depth + 1, body);
                    let name = if inner.anonymous { String::new() } else { format!(" {}", inner.name) };
                    let _ = writeln!(body, "{indent}}}{name};");
                }
            }
        }
    }

    fn guids(&mut self) {
        self.text.push('\n');
        for row in &self.facts.guids {
            let guid: String = row.text(1).chars().filter(char::is_ascii_hexdigit).collect();
            let bytes: Vec<_> = (16..32).step_by(2).map(|at| format!("0x{}", &guid[at..at + 2])).collect();
            let (first, second, third) = (&guid[..8], &guid[8..12], &guid[12..16]);
            let (name, bytes) = (row.text(0), bytes.join(", "));
            let _ = writeln!(self.text, "DEFINE_GUID({name}, 0x{first}, 0x{second}, 0x{third}, {bytes});");
        }
    }
}

fn kind(union: bool) -> &'static str {
    if union { "union" } else { "struct" }
}

fn tag(record: &Record) -> String {
    if record.tag.is_empty() { format!("_{}", record.name) } else { record.tag.clone() }
}

fn or_void(parameters: &[String]) -> String {
    if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") }
}
