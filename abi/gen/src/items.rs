//! Emission of everything that is not a record: enumerations, macros, callbacks, aliases, tables, lists.

use std::collections::BTreeMap;

use crate::facts::Alias;
use crate::facts::Callback;
use crate::facts::CallbackKind;
use crate::facts::Constant;
use crate::facts::Enum;
use crate::facts::Remarks;
use crate::facts::SlotTable;
use crate::scope::Scope;
use crate::scope::pointer_names;
use crate::shape::field_name;
use crate::source::Source;
use crate::tsv::Error;
use crate::tsv::Row;

/// Emits an enumeration over the integer `base`.
pub fn enumeration(source: &mut Source, remarks: &Remarks, enumeration: &Enum, base: &str) {
    let Enum { name, values } = enumeration;
    source.define(name);
    source.mention("open_enum");
    source.line("");
    source.line("open_enum! {");
    let values_text = if values.len() == 1 { "1 value".to_owned() } else { format!("{} values", values.len()) };
    let bytes = if base == "u8" { "1 byte" } else { "4 bytes" };
    source.doc(4, format!("`enum {name}`: {values_text}, {bytes}."));
    source.line(format!("    pub enum {name}: {base} {{"));
    for value in values {
        let remark = sentence(remarks.on_member(name, &value.name));
        source.doc(8, format!("{}.{remark} Source: {}.", number_words(value.value), value.source));
        source.line(format!("        {} = {},", value.name, value.value));
    }
    source.line("    }");
    source.line("}");
}

/// Emits a macro as a constant.
pub fn macro_constant(source: &mut Source, remarks: &Remarks, constant: &Constant) {
    let value = constant.value;
    let rust = match value {
        ..0 => "i32",
        0..=0xffff_ffff => "u32",
        _ => "u64",
    };
    source.define(&constant.name);
    let remark = sentence(remarks.on(&constant.name));
    source.doc(0, format!("`#define`, {}.{remark} Source: {}.", number_words(value), constant.source));
    source.line(format!("pub const {}: {rust} = {};", constant.name, literal(value)));
}

/// Emits an enumerator that a later kit adds to an enumeration of the main modules.
pub fn added_enumerator(source: &mut Source, enumeration: &str, constant: &Constant) {
    source.mention(enumeration);
    source.define(&constant.name);
    source.doc(0, format!("[`{enumeration}`], {}: {}.", number_words(constant.value), constant.source));
    source.line(format!("pub const {}: {enumeration} = {enumeration}({});", constant.name, constant.value));
}

/// A remark as one more sentence.
fn sentence(remark: Option<&str>) -> String {
    remark.map(|text| format!(" {text}")).unwrap_or_default()
}

fn literal(value: i128) -> String {
    if value > 0xffff { format!("{value:#x}") } else { value.to_string() }
}

fn number_words(value: i128) -> String {
    if value > 9 { format!("{value} ({value:#x})") } else { value.to_string() }
}

/// Emits a callback's types.
pub fn callback(source: &mut Source, scope: &Scope, remarks: &Remarks, callback: &Callback) -> Result<(), Error> {
    let at = |error: Error| error.at(&callback.place);
    let mut parameters = Vec::new();
    for parameter in &callback.parameters {
        let rust = scope.resolve(&parameter.ctype).map_err(at)?;
        source.mention(&rust.text);
        parameters.push(format!("{}: {}", field_name(&parameter.name), rust.text));
    }
    let function = scope.function(&callback.returns, &parameters).map_err(at)?;
    if let Some(returns) = scope.returned(&callback.returns).map_err(at)? {
        source.mention(&returns.text);
    }
    source.mention("winfn");
    let name = &callback.name;
    let pointers = pointer_names(callback.kind, name);
    source.line("");
    source.define(name);
    match callback.kind {
        CallbackKind::Pointer => {
            source.doc(0, format!("`{name}`, a function pointer that may be NULL."));
            callback_facts(source, remarks, callback);
            source.line(format!("pub type {name} = Option<{function}>;"));
        }
        CallbackKind::Function | CallbackKind::Export => {
            let what = if callback.kind == CallbackKind::Export { "the exported function" } else { "a function" };
            source.doc(0, format!("The type of {what} `{name}`: a pointer that is never NULL."));
            callback_facts(source, remarks, callback);
            source.line(format!("pub type {name} = {function};"));
            for pointer in pointers {
                source.define(&pointer);
                source.doc(0, format!("Pointer to a [`{name}`]; may be NULL."));
                source.line(format!("pub type {pointer} = Option<{name}>;"));
            }
        }
    }
    Ok(())
}

/// Emits a function-pointer type that no table gives a signature.
pub fn unknown_signature(source: &mut Source, name: &str) {
    source.define(name);
    source.mention("UnknownSignature");
    source.line("");
    source.doc(0, format!("`{name}`: no table has its signature, so it cannot be called as it is."));
    source.line(format!("pub type {name} = Option<UnknownSignature>;"));
}

fn callback_facts(source: &mut Source, remarks: &Remarks, callback: &Callback) {
    source.doc(0, "");
    let mut facts = Vec::new();
    match (&callback.irql_docs, &callback.irql_header) {
        (None, None) => facts.push("IRQL: not stated.".to_owned()),
        (docs, header) => {
            let parts = [
                docs.as_ref().map(|text| format!("{} (documentation)", text.trim_end_matches('.'))),
                header.as_ref().map(|text| format!("{text} (header annotation)")),
            ];
            facts.push(format!("IRQL: {}.", parts.into_iter().flatten().collect::<Vec<_>>().join("; ")));
        }
    }
    if let Some(since) = &callback.since {
        facts.push(format!("Since: {}.", since.trim_end_matches('.')));
    }
    facts.push(format!("Source: {}.", callback.source));
    source.doc(0, facts.join(" "));
    if let Some(remark) = remarks.on(&callback.name) {
        source.doc(0, "");
        source.doc(0, remark);
    }
}

/// Emits a typedef.
pub fn alias(source: &mut Source, scope: &Scope, alias: &Alias) -> Result<(), Error> {
    let rust = scope.resolve(&alias.target).map_err(|error| error.at(&alias.place))?;
    source.mention(&rust.text);
    source.define(&alias.name);
    source.doc(0, format!("`typedef {}`.", alias.spelling));
    source.line(format!("pub type {} = {};", alias.name, rust.text));
    Ok(())
}

/// Emits the opaque type behind a handle typedef.
pub fn opaque(source: &mut Source, name: &str) {
    source.define(name);
    source.mention("opaque_types");
    source.line(format!(
        "opaque_types! {{ /// What a `{}` points to: only Dxgkrnl knows.\n{name} }}",
        name.trim_end_matches('_')
    ));
}

/// Emits the slots of a function table and its sizes as data.
pub fn slot_table(source: &mut Source, table: &SlotTable) {
    let SlotTable { name, slots, sizes, size } = table;
    source.mention("Slot");
    source.line("");
    source.doc(0, format!("The {} slots of [`crate::{name}`], {size} bytes, in order.", slots.len()));
    source.line(format!("pub const {name}_SLOTS: &[Slot] = &["));
    for slot in slots {
        source.line(format!(
            "    Slot {{ index: {}, offset: {}, member: {:?}, ctype: {:?}, guard: {}, documented: {}, note: {} }},",
            slot.index,
            slot.offset,
            slot.member,
            slot.ctype,
            slot.guard
                .as_ref()
                .map_or("None".to_owned(), |(macro_name, value)| format!("Some(({macro_name:?}, {value:#x}))")),
            option(slot.documented.as_deref()),
            option(slot.note.as_deref()),
        ));
    }
    source.line("];");
    if !sizes.is_empty() {
        source.mention("SizeAt");
        source.doc(0, format!("Bytes of [`crate::{name}`] as a driver of each interface version compiles it."));
        source.line(format!("pub const {name}_SIZES: &[SizeAt] = &["));
        for (version, value, size) in sizes {
            let value = value.map_or("None".to_owned(), |value| format!("Some({value:#x})"));
            source.line(format!("    SizeAt {{ version: {version:?}, value: {value}, size: {size} }},"));
        }
        source.line("];");
    }
}

fn option(text: Option<&str>) -> String {
    format!("{text:?}")
}

/// Emits an interface GUID.
pub fn guid(source: &mut Source, row: &Row) -> Result<(), Error> {
    let bad = || Error::new("not a GUID").at(&row.place);
    let digits: String = row.text(1).chars().filter(|&c| c != '-').collect();
    let value = u128::from_str_radix(&digits, 16).map_err(|_| bad())?;
    if digits.len() != 32 {
        return Err(bad());
    }
    let bytes = value.to_be_bytes();
    let tail: Vec<String> = bytes[8..].iter().map(|byte| format!("{byte:#04x}")).collect();
    source.mention("GUID");
    source.define(row.text(0));
    source.doc(0, format!("`{{{}}}`; first seen: {}.", row.text(1), row.text(2)));
    source.line(format!(
        "pub const {}: GUID = GUID {{ Data1: 0x{}, Data2: 0x{}, Data3: 0x{}, Data4: [{}] }};",
        row.text(0),
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        tail.join(", "),
    ));
    Ok(())
}

/// Emits the bug checks of display drivers as data.
pub fn bugchecks(source: &mut Source, rows: &[Row]) -> Result<(), Error> {
    source.mention("BugCheck");
    source.doc(0, "Every row of the table, in its order.");
    source.line("pub const BUG_CHECKS: &[BugCheck] = &[");
    for row in rows {
        let parameter = row.optional(1).map(|_| row.number(1)).transpose()?;
        source.line(format!(
            "    BugCheck {{ code: {:#x}, parameter1: {}, symbol: {}, meaning: {:?} }},",
            row.number(0)?,
            parameter.map_or("None".to_owned(), |value| format!("Some({value:#x})")),
            option(row.optional(2)),
            row.text(3),
        ));
    }
    source.line("];");
    Ok(())
}

/// Emits the bug check codes: a constant each, and a list.
pub fn bugcodes(source: &mut Source, rows: &[Row]) -> Result<(), Error> {
    let codes = hexadecimal(rows)?;
    for (name, value) in &codes {
        source.doc(0, format!("Bug check {value:#x}."));
        source.line(format!("pub const {name}: u32 = {value:#x};"));
    }
    source.line("");
    source.doc(0, "Code and name of every bug check, by code.");
    source.line("pub const BUG_CODES: &[(u32, &str)] = &[");
    let mut sorted = codes;
    sorted.sort_by_key(|&(_, value)| value);
    for (name, value) in sorted {
        source.line(format!("    ({value:#x}, {name:?}),"));
    }
    source.line("];");
    Ok(())
}

/// Emits the status values: a constant each, and a list by value with one name each.
///
/// Two values have two names. The list has the later one of 0 (`STATUS_SUCCESS`) and the first one of the other.
pub fn ntstatus(source: &mut Source, rows: &[Row]) -> Result<(), Error> {
    let mut by_value: BTreeMap<u32, &str> = BTreeMap::new();
    source.mention("NTSTATUS");
    for (name, value) in hexadecimal(rows)? {
        source.doc(0, format!("{value:#010x}."));
        source.line(format!("pub const {name}: NTSTATUS = NTSTATUS({value:#010x}_u32 as i32);"));
        if value == 0 {
            by_value.insert(value, name);
        } else {
            by_value.entry(value).or_insert(name);
        }
    }
    source.line("");
    source.doc(0, "Value and name of every status, by value as an unsigned number.");
    source.line("pub(crate) const NAMES: &[(u32, &str)] = &[");
    for (value, name) in by_value {
        source.line(format!("    ({value:#010x}, {name:?}),"));
    }
    source.line("];");
    Ok(())
}

fn hexadecimal(rows: &[Row]) -> Result<Vec<(&str, u32)>, Error> {
    rows.iter()
        .map(|row| {
            let value = u32::from_str_radix(row.text(1), 16);
            Ok((row.text(0), value.map_err(|_| Error::new("not a hexadecimal number").at(&row.place))?))
        })
        .collect()
}

/// Emits the list of thunk exports.
pub fn exports(source: &mut Source, rows: &[Row]) -> Result<(), Error> {
    source.mention("Export");
    source.doc(0, "Every `D3DKMT` entry point, by name.");
    source.line("pub const D3DKMT_EXPORTS: &[Export] = &[");
    for row in rows {
        source.line(format!(
            "    Export {{ name: {:?}, dll: {}, api_set: {}, first_build: {}, declared: {} }},",
            row.text(0),
            option(row.optional(1)),
            option(row.optional(2)),
            row.number(3)?,
            row.text(4) == "yes",
        ));
    }
    source.line("];");
    Ok(())
}
