//! Which generated item goes into which file.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;

use crate::Files;
use crate::facts::Callback;
use crate::facts::CallbackKind;
use crate::facts::Facts;
use crate::facts::Record;
use crate::facts::Remarks;
use crate::facts::Slot;
use crate::items;
use crate::lower;
use crate::probes;
use crate::records;
use crate::records::About;
use crate::scope;
use crate::scope::Scope;
use crate::source::Source;
use crate::tsv::Error;

/// Headers in the order of the module list: header, module, what it is.
const HEADERS: &[(&str, &str, &str)] = &[
    ("d3dkmddi.h", "d3dkmddi", "Display miniport driver interface: what Dxgkrnl and the kernel-mode driver exchange."),
    ("d3dkmdt.h", "d3dkmdt", "Types that the video present network, OPM and brightness interfaces share."),
    ("d3dkmthk.h", "d3dkmthk", "Kernel-mode thunks: the arguments of the `D3DKMT` entry points."),
    ("d3dukmdt.h", "d3dukmdt", "Types that user mode and kernel mode share."),
    (
        "dispmprt.h",
        "dispmprt",
        "Display port: the two function tables, adapter start and stop, child devices, interfaces.",
    ),
];

/// A group of records of one header that gets a file of its own: header, predicate on the name, file, what it is.
type Topic = (&'static str, fn(&str) -> bool, &'static str, &'static str);

/// The first that matches decides; a header without any has one file.
const TOPICS: &[Topic] = &[
    (
        "d3dkmddi.h",
        |name| name.starts_with("DXGKARGCB_") || name.starts_with("DXGKCB"),
        "callback_arguments",
        "Arguments of the callbacks that Dxgkrnl offers.",
    ),
    (
        "d3dkmddi.h",
        |name| name.starts_with("DXGKARG_"),
        "arguments",
        "Arguments of the functions that the driver offers.",
    ),
    ("d3dkmddi.h", |name| name.contains("_INTERFACE"), "interfaces", "Interfaces that are queried for."),
    ("d3dkmddi.h", |name| name.ends_with("CAPS") || name.contains("CAPS_"), "caps", "Capabilities."),
    ("d3dkmddi.h", |name| name.contains("FLAGS"), "flags", "Flag words."),
    ("d3dkmddi.h", |_| true, "types", "Everything else."),
    ("d3dkmthk.h", |name| name.contains("QUERYSTATISTICS"), "query_statistics", "`D3DKMTQueryStatistics`."),
    (
        "d3dkmthk.h",
        |name| name.contains("ESCAPE") || name.contains("VERIFIER"),
        "escape",
        "`D3DKMTEscape` and the verifier options.",
    ),
    (
        "d3dkmthk.h",
        |name| {
            name.contains("PRESENT") || name.contains("OVERLAY") || name.contains("FLIP") || name.contains("OUTPUTDUPL")
        },
        "present",
        "Presentation, overlays and output duplication.",
    ),
    ("d3dkmthk.h", |name| name < "D3DKMT_H", "thunks_a_to_g", "Thunk arguments, A to G."),
    ("d3dkmthk.h", |_| true, "thunks_h_to_z", "Thunk arguments, H to Z."),
    (
        "dispmprt.h",
        |name| matches!(name, "DRIVER_INITIALIZATION_DATA" | "DXGKRNL_INTERFACE" | "KMDDOD_INITIALIZATION_DATA"),
        "tables",
        "The function tables that driver and Dxgkrnl exchange.",
    ),
    ("dispmprt.h", |name| name.contains("_INTERFACE"), "interfaces", "Interfaces that are queried for."),
    ("dispmprt.h", |_| true, "types", "Everything else."),
];

/// Enumerations by the beginning of their name: file, predicate, what it is.
type EnumTopic = (&'static str, fn(&str) -> bool, &'static str);

const ENUM_TOPICS: &[EnumTopic] = &[
    ("d3dddi", |name| name.starts_with("D3DDDI"), "Enumerations `D3DDDI…`."),
    (
        "d3dkmdt",
        |name| name.starts_with("D3DKMDT") || name.starts_with("DXGKMDT"),
        "Enumerations `D3DKMDT_…` and `DXGKMDT_…`.",
    ),
    ("d3dkmt", |name| name.starts_with("D3DKMT") || name.starts_with("KMT"), "Enumerations `D3DKMT_…` and `KMT…`."),
    ("dxgk", |_| true, "Enumerations `DXGK_…` and what is left."),
];

/// All generated files.
pub fn files(facts: &Facts) -> Result<Files, Error> {
    let main = Scope::main(facts)?;
    let mut output = Output::default();
    main_records(facts, &main, &mut output)?;
    main_enums(facts, &mut output)?;
    main_callbacks(facts, &main, &mut output)?;
    main_aliases(facts, &main, &mut output)?;
    data(facts, &mut output)?;
    variants(facts, &main, &mut output)?;
    kit_28000(facts, &main, &mut output)?;
    output.add("tests/against_facts/generated/names.rs", &probes::names(facts));
    output.test_index();
    output.index();
    match output.clashes.first() {
        Some(clash) => Err(Error::new(clash)),
        None => Ok(output.files),
    }
}

#[derive(Default)]
struct Output {
    files: Files,
    /// Root modules of `src/generated`.
    modules: Vec<String>,
    /// Names that appear in the crate's root, and the file that defines them.
    root: BTreeMap<String, String>,
    /// Names that would be defined twice.
    clashes: Vec<String>,
}

impl Output {
    fn add(&mut self, path: &str, source: &Source) {
        if let Some(name) = source.defined_twice() {
            self.clashes.push(format!("{path}: `{name}` is defined twice"));
        }
        self.files.insert(PathBuf::from(path), source.finish());
    }

    /// Adds a file whose items appear in the crate's root, where every name can stand for one thing only.
    fn add_to_root(&mut self, path: &str, source: &Source) {
        for name in source.definitions() {
            if let Some(other) = self.root.insert(name.clone(), path.to_owned()) {
                self.clashes.push(format!("`{name}` is defined by {other} and by {path}"));
            }
        }
        self.add(path, source);
    }

    /// A module that keeps its names to itself.
    fn module(&mut self, name: &str, source: &Source) {
        self.add(&format!("src/generated/{name}.rs"), source);
        self.modules.push(name.to_owned());
    }

    /// A module whose items appear in the crate's root.
    fn root_module(&mut self, name: &str, source: &Source) {
        self.add_to_root(&format!("src/generated/{name}.rs"), source);
        self.modules.push(name.to_owned());
    }

    /// A module made of several files whose items appear in it.
    fn directory(&mut self, name: &str, docs: &str, parts: &[(&str, Source)]) {
        let mut index = Source::new(docs);
        index.line("");
        for (part, source) in parts {
            self.add_to_root(&format!("src/generated/{name}/{part}.rs"), source);
            index.line(format!("mod {part};"));
        }
        index.line("");
        for (part, _) in parts {
            index.line(format!("pub use {part}::*;"));
        }
        self.module(name, &index);
    }

    fn test_index(&mut self) {
        let mut index = Source::new("Rows for everything that the tables name.");
        index.line("");
        let directory = Path::new("tests/against_facts/generated");
        for module in self.files.keys().filter_map(|path| path.strip_prefix(directory).ok()) {
            index.line(format!("pub mod {};", module.with_extension("").display()));
        }
        self.add("tests/against_facts/generated/mod.rs", &index);
    }

    fn index(&mut self) {
        let mut root = Source::new("What the fact tables say, as Rust.");
        root.line("");
        self.modules.sort();
        for module in &self.modules {
            root.line(format!("pub mod {module};"));
        }
        self.add("src/generated/mod.rs", &root);
    }
}

fn main_records(facts: &Facts, main: &Scope, output: &mut Output) -> Result<(), Error> {
    let mut rows = probes::begin("Rows for the main layout table.");
    let mut count = 0;
    for &(header, module, what) in HEADERS {
        let mut parts: Vec<(&str, Source)> = Vec::new();
        let records = facts.records.iter().filter(|record| record.header == header);
        for record in records {
            let topic = TOPICS.iter().find(|topic| topic.0 == header && topic.1(&record.name));
            let (part, part_docs) = topic.map_or((module, what), |topic| (topic.2, topic.3));
            let position = parts.iter().position(|(name, _)| *name == part).unwrap_or_else(|| {
                parts.push((part, Source::new(&format!("`{header}`: {part_docs}"))));
                parts.len() - 1
            });
            let lowered = lower::lower(record, main)?;
            records::emit(&mut parts[position].1, &lowered, &about(facts, record));
            probes::add(&mut rows, count, "", &lowered);
            count += 1;
        }
        match parts.as_slice() {
            [(_, only)] => output.root_module(module, only),
            many => output.directory(module, &format!("`{header}`. {what}"), many),
        }
    }
    if let Some(lost) = facts.records.iter().find(|record| !HEADERS.iter().any(|known| known.0 == record.header)) {
        return Err(Error::new(format!("unknown header `{}`", lost.header)).at(&lost.place));
    }
    probes::end(&mut rows, count);
    output.add("tests/against_facts/generated/wddm3_2_26100.rs", &rows);
    Ok(())
}

/// What is known of a record of the main table beyond its layout.
fn about(facts: &Facts, record: &Record) -> About {
    let mut docs = vec![format!(
        "`{}`, {}: {} bytes, aligned to {}. Source: {}.",
        record.name, record.header, record.size, record.align, record.sources
    )];
    if record.sources == "C" {
        docs.push(String::new());
        docs.push("Undocumented: offsets are certain, types are approximate.".to_owned());
    }
    if let Some(remark) = facts.remarks.on(&record.name) {
        docs.extend([String::new(), remark.to_owned()]);
    }
    let table = facts.tables.iter().find(|table| table.name == record.name);
    let slots = table.iter().flat_map(|table| &table.slots);
    let mut members: BTreeMap<String, String> = slots.map(|slot| (slot.member.clone(), slot_words(slot))).collect();
    for row in &record.members {
        if let Some(remark) = facts.remarks.on_member(&record.name, &row.path) {
            members.insert(row.path.clone(), remark.to_owned());
        }
    }
    About { docs, members }
}

fn slot_words(slot: &Slot) -> String {
    let mut words = format!("Slot {}", slot.index);
    if let Some((name, value)) = &slot.guard {
        words += &format!(", since `{name}` ({value:#x})");
    }
    if let Some(documented) = &slot.documented {
        words += &format!("; documented for {}", documented.replace('[', "(").replace(']', ")"));
    }
    if let Some(note) = &slot.note {
        words += &format!("; {note}");
    }
    words + "."
}

fn main_enums(facts: &Facts, output: &mut Output) -> Result<(), Error> {
    let mut parts: Vec<(&str, Source)> = ENUM_TOPICS.iter().map(|&(name, _, docs)| (name, Source::new(docs))).collect();
    for enumeration in &facts.enums {
        let position = ENUM_TOPICS.iter().position(|topic| topic.1(&enumeration.name)).unwrap_or_default();
        let (_, base) = scope::enum_base(facts, &enumeration.name)?;
        items::enumeration(&mut parts[position].1, &facts.remarks, enumeration, base);
    }
    output.directory("enums", "The enumerations of all five headers, open: any value is representable.", &parts);
    let mut macros = Source::new("The macros of all five headers that are numbers.");
    for constant in &facts.macros {
        items::macro_constant(&mut macros, &facts.remarks, constant);
    }
    output.root_module("macros", &macros);
    Ok(())
}

fn main_callbacks(facts: &Facts, main: &Scope, output: &mut Output) -> Result<(), Error> {
    let mut ddi = Source::new("Functions that the driver offers: `DXGKDDI_…` and the interfaces it implements.");
    let mut cb = Source::new("Functions that Dxgkrnl offers to the driver: `DXGKCB_…`.");
    let mut thunks = Source::new(
        "Exported functions: the `D3DKMT` entry points and `DxgkInitialize`.\n\n\
         The table has no typedef names for pointers to them; `PFND3DKMT_` and the rest of the name in capitals is the\n\
         headers' habit.",
    );
    for callback in facts.callbacks.iter().filter(|callback| !scope::is_removed(&callback.source)) {
        let source = match callback.kind {
            CallbackKind::Export => &mut thunks,
            _ if callback.name.starts_with("DXGKCB_") => &mut cb,
            _ => &mut ddi,
        };
        items::callback(source, main, &facts.remarks, callback)?;
    }
    for &name in scope::UNKNOWN_SIGNATURES {
        items::unknown_signature(&mut thunks, name);
    }
    output.directory(
        "callbacks",
        "The types of all functions that cross a boundary.",
        &[("cb", cb), ("ddi", ddi), ("thunks", thunks)],
    );
    Ok(())
}

fn main_aliases(facts: &Facts, main: &Scope, output: &mut Output) -> Result<(), Error> {
    let known: BTreeSet<&str> = facts
        .records
        .iter()
        .map(|record| record.name.as_str())
        .chain(facts.enums.iter().map(|enumeration| enumeration.name.as_str()))
        .collect();
    let pointers: BTreeSet<String> =
        facts.callbacks.iter().flat_map(|callback| scope::pointer_names(callback.kind, &callback.name)).collect();
    let mut source = Source::new("The plain typedefs of all five headers.");
    for name in main.handle_targets() {
        items::opaque(&mut source, name);
    }
    for alias in &facts.aliases {
        if !known.contains(alias.name.as_str()) && !pointers.contains(&alias.name) {
            items::alias(&mut source, main, alias)?;
        }
    }
    output.root_module("aliases", &source);
    Ok(())
}

fn data(facts: &Facts, output: &mut Output) -> Result<(), Error> {
    let mut guids = Source::new("The interface GUIDs of `dispmprt.h`.");
    for row in &facts.guids {
        items::guid(&mut guids, row)?;
    }
    output.root_module("guids", &guids);

    let mut tables = Source::new("The slots of the function tables, as data.");
    for table in &facts.tables {
        items::slot_table(&mut tables, table);
    }
    output.module("slots", &tables);

    let mut bugchecks = Source::new("The bug checks that a display driver can cause.");
    items::bugchecks(&mut bugchecks, &facts.bugchecks)?;
    output.module("bugchecks", &bugchecks);

    let mut bugcodes = Source::new("The bug check codes.");
    items::bugcodes(&mut bugcodes, &facts.bugcodes)?;
    output.module("bugcodes", &bugcodes);

    let mut ntstatus = Source::new("The status values.");
    items::ntstatus(&mut ntstatus, &facts.ntstatus)?;
    output.module("ntstatus", &ntstatus);

    let mut exports = Source::new("The `D3DKMT` exports.");
    items::exports(&mut exports, &facts.exports)?;
    output.module("exports", &exports);
    Ok(())
}

/// The module of an older kit: `WDDM3.1/WDK22621` becomes `wddm3_1_22621`.
fn variant_module(group: &str) -> String {
    let plain = group.replace("/WDK", "_").replace("/SDK", "_").to_ascii_lowercase();
    plain.replace(['.', '-', '/'], "_")
}

fn variants(facts: &Facts, main: &Scope, output: &mut Output) -> Result<(), Error> {
    let mut groups: Vec<&str> = Vec::new();
    for record in &facts.variants {
        if !groups.contains(&record.group.as_str()) {
            groups.push(&record.group);
        }
    }
    let mut index = Source::new(
        "Records as older kits had them, for comparison and for drivers that must run on both.\n\n\
         Nothing here is reachable from the main modules. A name that an older form does not redefine is the main one.",
    );
    for group in groups {
        let module = variant_module(group);
        let records: Vec<Record> = facts.variants.iter().filter(|record| record.group == group).cloned().collect();
        let mut source = Source::new(&format!(
            "{group}: records that differ from the main modules there, or that were removed since."
        ));
        let mut rows = probes::begin(&format!("Rows for the records of {group}."));
        let mut scope = main.with(&records, &[]);
        let redeclared = redeclare_callbacks(facts, &records, &mut scope);
        for callback in &redeclared {
            items::callback(&mut source, &scope, &Remarks::default(), callback)?;
        }
        for (index, record) in records.iter().enumerate() {
            if let Some(newer) = facts.records.iter().find(|main| main.name == record.name) {
                common_bytes(&mut source, record, newer);
            }
            let lowered = lower::lower(record, &scope)?;
            let docs =
                vec![format!("`{}` in {group}: {} bytes, aligned to {}.", record.name, record.size, record.align)];
            records::emit(&mut source, &lowered, &About { docs, members: BTreeMap::new() });
            probes::add(&mut rows, index, group, &lowered);
        }
        probes::end(&mut rows, records.len());
        rows.import_from(&format!("wddm_abi::variants::{module}"), source.definitions().clone());
        output.add(&format!("tests/against_facts/generated/{module}.rs"), &rows);
        output.add(&format!("src/generated/variants/{module}.rs"), &source);
        index.line(format!("pub mod {module};"));
    }
    output.module("variants", &index);
    Ok(())
}

/// How many leading bytes of an older form mean the same in the main one: up to the first member line that differs.
fn common_bytes(source: &mut Source, older: &Record, newer: &Record) {
    let differs = |rows: &Record, known: &Record| {
        rows.members
            .iter()
            .filter(|row| !matches!(row.kind, crate::facts::MemberKind::Struct | crate::facts::MemberKind::Union))
            .filter(|row| {
                !known.members.iter().any(|other| {
                    other.path == row.path
                        && other.offset == row.offset
                        && other.bits == row.bits
                        && other.size == row.size
                })
            })
            .map(|row| row.offset)
            .min()
    };
    let common = [differs(older, newer), differs(newer, older)]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(older.size.min(newer.size));
    let name = &older.name;
    source.define(&format!("{name}_COMMON_BYTES"));
    source.line("");
    source.doc(0, format!("Leading bytes of [`{name}`] that are the same in [`crate::{name}`]."));
    source.line(format!("pub const {name}_COMMON_BYTES: usize = {common};"));
}

/// The callbacks that an older kit declares over its own records: those whose parameters name one of `records` and
/// those that are gone since. Makes their names known to `scope`.
fn redeclare_callbacks(facts: &Facts, records: &[Record], scope: &mut Scope) -> Vec<Callback> {
    let names: BTreeSet<&str> = records.iter().map(|record| record.name.as_str()).collect();
    let used: BTreeSet<&str> =
        records.iter().flat_map(|record| &record.members).map(|member| member.spelling.as_str()).collect();
    let mut found = Vec::new();
    for callback in &facts.callbacks {
        let pointers = scope::pointer_names(callback.kind, &callback.name);
        if !pointers.iter().any(|pointer| used.contains(pointer.as_str())) {
            continue;
        }
        let mut callback = callback.clone();
        // `callbacks.tsv` says so in the source column of this line.
        let took_handle = callback.source.contains("22621 took const HANDLE hNativeFence");
        if took_handle && names.contains("DRIVER_INITIALIZATION_DATA") {
            callback.parameters = crate::ctype::parse_parameters("const HANDLE hNativeFence").unwrap_or_default();
        }
        let over_own = callback.parameters.iter().any(|parameter| mentions(&parameter.ctype, &names));
        if over_own || took_handle || scope::is_removed(&callback.source) {
            for pointer in pointers {
                scope.add_function(&pointer);
            }
            found.push(callback);
        }
    }
    found
}

fn mentions(ctype: &crate::ctype::CType, names: &BTreeSet<&str>) -> bool {
    use crate::ctype::CType;
    match ctype {
        CType::Named(name) => names.contains(name.as_str()),
        CType::Pointer { to, .. } | CType::Array(to, _) => mentions(to, names),
        CType::Function { returns, parameters } => {
            mentions(returns, names) || parameters.iter().any(|parameter| mentions(parameter, names))
        }
    }
}

fn kit_28000(facts: &Facts, main: &Scope, output: &mut Output) -> Result<(), Error> {
    let mut source = Source::new(
        "What the 28000 kits add or change: records, enumerators and macros.\n\n\
         Nothing here is reachable from the main modules, which are 26100. A name that is not here is the main one.",
    );
    let known: BTreeSet<&str> = facts.enums.iter().map(|enumeration| enumeration.name.as_str()).collect();
    let new_enums: Vec<&str> = facts
        .enums_28000
        .iter()
        .map(|enumeration| enumeration.name.as_str())
        .filter(|name| !known.contains(name))
        .collect();
    let mut scope = main.with(&facts.records_28000, &new_enums);
    for &name in scope::UNKNOWN_SIGNATURES_28000 {
        scope.add_function(name);
        items::unknown_signature(&mut source, name);
    }
    let mut rows = probes::begin("Rows for the records of the 28000 kits.");
    for (index, record) in facts.records_28000.iter().enumerate() {
        let lowered = lower::lower(record, &scope)?;
        let docs = vec![format!(
            "`{}`, {}, {} in 28000: {} bytes, aligned to {}. Source: {}.",
            record.name, record.header, record.group, record.size, record.align, record.sources
        )];
        records::emit(&mut source, &lowered, &About { docs, members: BTreeMap::new() });
        probes::add(&mut rows, index, &record.group, &lowered);
    }
    probes::end(&mut rows, facts.records_28000.len());
    for enumeration in &facts.enums_28000 {
        if new_enums.contains(&enumeration.name.as_str()) {
            items::enumeration(&mut source, &Remarks::default(), enumeration, "i32");
        } else {
            for constant in &enumeration.values {
                items::added_enumerator(&mut source, &enumeration.name, constant);
            }
        }
    }
    for constant in &facts.macros_28000 {
        items::macro_constant(&mut source, &Remarks::default(), constant);
    }
    rows.import_from("wddm_abi::kit_28000", source.definitions().clone());
    output.add("tests/against_facts/generated/kit_28000.rs", &rows);
    output.module("kit_28000", &source);
    Ok(())
}
