//! Emission of structures and unions.

use std::collections::BTreeMap;

use crate::scope::Class;
use crate::scope::RustType;
use crate::shape::Access;
use crate::shape::Accessor;
use crate::shape::Lowered;
use crate::shape::Member;
use crate::shape::Role;
use crate::shape::TypeDef;
use crate::shape::field_name;
use crate::source::Source;

/// What the caller knows about a record beyond its layout.
pub struct About {
    /// Documentation lines of the record.
    pub docs: Vec<String>,
    /// More words on members, by their names.
    pub members: BTreeMap<String, String>,
}

/// Emits `record`, lowered, with all types declared inside it.
pub fn emit(source: &mut Source, record: &Lowered, about: &About) {
    let name = &record.types[0].name;
    for def in &record.types {
        emit_type(source, name, def, about);
    }
}

fn emit_type(source: &mut Source, record: &str, def: &TypeDef, about: &About) {
    source.define(&def.name);
    source.line("");
    if def.path.is_empty() {
        for line in &about.docs {
            source.doc(0, line);
        }
    } else {
        let TypeDef { path, size, align, .. } = def;
        source.doc(0, format!("`{path}` of [`{record}`]: {}, aligned to {align}.", bytes(*size)));
    }
    match def.packed {
        Some(1) => source.line("#[repr(C, packed)]"),
        Some(limit) => source.line(format!("#[repr(C, packed({limit}))]")),
        None => source.line("#[repr(C)]"),
    }
    if def.union {
        emit_union(source, def);
    } else {
        emit_struct(source, def, about);
    }
    emit_plain(source, def);
    emit_methods(source, def);
    emit_debug(source, def);
}

fn emit_struct(source: &mut Source, def: &TypeDef, about: &About) {
    let derive = if def.is_flags() { "#[derive(Clone, Copy, PartialEq, Eq)]" } else { "#[derive(Clone, Copy, Debug)]" };
    source.line(derive);
    source.line(format!("pub struct {} {{", def.name));
    for member in &def.members {
        source.mention(&member.rust.text);
        match &member.role {
            Role::Named { offset, spelling } => {
                let more = about_member(def, about, &member.name);
                source.doc(4, format!("Offset {offset}, {}.{more}", typed(member.rust.size, spelling)));
            }
            Role::Unit(offset) => {
                source.doc(4, format!("Offset {offset}, {}: storage of bit-fields.", bytes(member.rust.size)));
            }
            Role::Anonymous(offset) => {
                source.doc(4, format!("Offset {offset}, {}: anonymous union.", bytes(member.rust.size)));
            }
            Role::Filler => source.line("    #[doc(hidden)]"),
        }
        source.line(format!("    pub {}: {},", member.name, member.rust.text));
    }
    source.line("}");
}

fn about_member(def: &TypeDef, about: &About, name: &str) -> String {
    if !def.path.is_empty() {
        return String::new();
    }
    about.members.get(name).map(|text| format!(" {text}")).unwrap_or_default()
}

fn emit_union(source: &mut Source, def: &TypeDef) {
    source.line("#[derive(Clone, Copy)]");
    source.line(format!("pub union {} {{", def.name));
    for member in &def.members {
        source.mention(&member.rust.text);
        source.line(format!("    pub(crate) {}: {},", member.name, member.rust.text));
    }
    source.line("}");
}

/// The assertion that the type is as tabled, and what follows from it.
fn emit_plain(source: &mut Source, def: &TypeDef) {
    let mut facts = vec![def.name.clone(), def.size.to_string(), def.align.to_string()];
    let begin = if def.union {
        facts.extend(def.members.iter().map(|member| member.rust.text.clone()));
        "plain_union! {"
    } else {
        let member = |member: &Member| format!("{}: {} = {}", member.name, member.rust.text, member.offset);
        facts.extend(def.members.iter().map(member));
        "plain_struct! {"
    };
    source.mention(begin.trim_end_matches("! {"));
    source.mention("plain");
    source.line("");
    source.list(begin, &facts, "}");
}

fn emit_methods(source: &mut Source, def: &TypeDef) {
    source.line("");
    source.line(format!("impl {} {{", def.name));
    source.doc(4, "All bytes zero: what Windows passes where nothing else is said.");
    source.method("zeroed() -> Self", "plain::zeroed()");
    for accessor in &def.accessors {
        source.line("");
        emit_accessor(source, def, accessor);
    }
    source.line("}");
}

fn emit_accessor(source: &mut Source, def: &TypeDef, accessor: &Accessor) {
    let getter = field_name(&accessor.name);
    let name = &accessor.name;
    let offset = accessor.offset;
    match &accessor.kind {
        Access::Whole { place, in_union, rust, by_reference, spelling } => {
            source.mention(&rust.text);
            let text = &rust.text;
            source.doc(4, format!("`{name}` at offset {offset}, {}.", typed(rust.size, spelling)));
            let (returns, read) = match (in_union, by_reference) {
                (true, true) => (format!("&{text}"), format!("plain::view({})", place.borrow())),
                (true, false) => (text.clone(), format!("plain::get({})", place.borrow())),
                (false, true) => (format!("&{text}"), place.borrow()),
                (false, false) => (text.clone(), place.read()),
            };
            source.method(&format!("{getter}(&self) -> {returns}"), &read);
            if *by_reference {
                source.doc(4, format!("`{name}`, to change it in place."));
                let read =
                    if *in_union { format!("plain::view_mut({})", place.borrow_mut()) } else { place.borrow_mut() };
                source.method(&format!("{name}_mut(&mut self) -> &mut {text}"), &read);
            }
            source.doc(4, format!("Stores `{name}`."));
            let store = if *in_union {
                format!("plain::put({}, value)", place.borrow_mut())
            } else {
                format!("{} = value", place.write())
            };
            source.method(&format!("set_{name}(&mut self, value: {text})"), &format!("{store};"));
        }
        Access::Bits { place, in_union, unit, shift, width, enumeration } => {
            if let Some(rust) = enumeration {
                source.mention(&rust.text);
            }
            let integer = format!("u{}", unit * 8);
            let bits = BitField { unit: *unit, shift: *shift, width: *width };
            let returns = match enumeration {
                Some(rust) => rust.text.clone(),
                None if *width == 1 => "bool".to_owned(),
                None => integer.clone(),
            };
            let load = if *in_union { format!("plain::get::<_, {integer}>({})", place.borrow()) } else { place.read() };
            let value = bits.load(&load, &integer, enumeration.as_ref());
            let receiver = if def.is_flags() { "self" } else { "&self" };
            source.doc(4, format!("`{name}`: {} at offset {offset}.", bits.words()));
            source.method(&format!("{getter}({receiver}) -> {returns}"), &value);
            let dropped = if *width == 1 || bits.is_whole() { "" } else { " Higher bits of `value` are dropped." };
            source.doc(4, format!("Stores `{name}`.{dropped}"));
            let new = bits.store(&load, &integer, enumeration.as_ref());
            let store = if *in_union {
                format!("let bits = {new}; plain::put({}, bits)", place.borrow_mut())
            } else {
                format!("{} = {new}", place.write())
            };
            source.method(&format!("set_{name}(&mut self, value: {returns})"), &format!("{store};"));
            if def.is_flags() {
                source.doc(4, format!("This with `{name}` stored."));
                source.line("    #[must_use]");
                source.method(
                    &format!("with_{name}(mut self, value: {returns}) -> Self"),
                    &format!("self.set_{name}(value); self"),
                );
            }
        }
    }
}

struct BitField {
    unit: u32,
    shift: u32,
    width: u32,
}

impl BitField {
    fn is_whole(&self) -> bool {
        self.width == self.unit * 8
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.width)
    }

    fn words(&self) -> String {
        match self.width {
            1 => format!("bit {}", self.shift),
            width => format!("bits {} to {}", self.shift, self.shift + width - 1),
        }
    }

    fn load(&self, unit: &str, integer: &str, enumeration: Option<&RustType>) -> String {
        let mask = self.mask();
        if self.width == 1 && enumeration.is_none() {
            return format!("{unit} & {:#x} != 0", mask << self.shift);
        }
        let number = match (self.is_whole(), self.shift) {
            (true, _) => unit.to_owned(),
            (false, 0) => format!("{unit} & {mask:#x}"),
            (false, shift) => format!("({unit} >> {shift}) & {mask:#x}"),
        };
        match enumeration {
            Some(RustType { text, class: Class::Enum { base }, .. }) if *base != integer => {
                format!("{text}(({number}) as {base})")
            }
            Some(rust) => format!("{}({number})", rust.text),
            None => number,
        }
    }

    fn store(&self, unit: &str, integer: &str, enumeration: Option<&RustType>) -> String {
        let mask = self.mask();
        let number = match enumeration.map(|rust| rust.class) {
            Some(Class::Enum { base }) if base == integer => "value.0".to_owned(),
            Some(_) => format!("(value.0 as {integer})"),
            None if self.width == 1 => format!("(value as {integer})"),
            None => "value".to_owned(),
        };
        if self.is_whole() {
            return number;
        }
        let kept = match enumeration {
            None if self.width == 1 => number,
            _ => format!("({number} & {mask:#x})"),
        };
        let shifted = if self.shift == 0 { kept } else { format!("({kept} << {})", self.shift) };
        format!("({unit} & !{:#x}) | {shifted}", mask << self.shift)
    }
}

fn emit_debug(source: &mut Source, def: &TypeDef) {
    if !def.union && !def.is_flags() {
        return;
    }
    source.mention("fmt");
    source.line("");
    source.line(format!("impl fmt::Debug for {} {{", def.name));
    source.line("    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {");
    if def.union {
        source.line(format!("        plain::debug_union(f, \"{}\")", def.name));
    } else {
        source.mention("bits");
        let Member { name, rust, .. } = &def.members[0];
        let value = if rust.size == 8 { format!("self.{name}") } else { format!("u64::from(self.{name})") };
        source.line(format!("        bits::debug(f, \"{}\", {value}, &[", def.name));
        let entries: Vec<String> = def
            .accessors
            .iter()
            .filter_map(|accessor| match &accessor.kind {
                Access::Bits { shift, width, .. } => Some(format!("(\"{}\", {shift}, {width})", accessor.name)),
                Access::Whole { .. } => None,
            })
            .collect();
        source.list("            ", &entries, "        ])");
    }
    source.line("    }");
    source.line("}");
}

fn bytes(size: u32) -> String {
    if size == 1 { "1 byte".to_owned() } else { format!("{size} bytes") }
}

fn typed(size: u32, spelling: &str) -> String {
    match spelling.strip_prefix('~') {
        Some(plain) => format!("{}: `{plain}`, type approximate", bytes(size)),
        None => format!("{}: `{spelling}`", bytes(size)),
    }
}
