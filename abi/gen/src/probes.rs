//! Emission of the rows by which the tests of `wddm_abi` reach every line of the layout tables.

use crate::facts::CallbackKind;
use crate::facts::Facts;
use crate::scope;
use crate::shape::Lowered;
use crate::shape::Reach;
use crate::source::Source;

/// Begins a file of rows for the tests.
pub fn begin(docs: &str) -> Source {
    let mut source = Source::new(docs).of_test("wddm_abi");
    let macros = ["Reach", "RecordProbe", "bits", "field", "leaf", "load", "store"];
    source.import_from("crate::probe", macros.map(str::to_owned).into());
    source.mention("RecordProbe");
    source
}

/// Adds the rows of one record of the table's group `group`, as a constant called `R` and `index`.
///
/// One constant and one function per record: the compiler takes quadratic time over large bodies, and much of it over
/// many closures.
pub fn add(source: &mut Source, index: usize, group: &str, record: &Lowered) {
    let name = &record.types[0].name;
    source.mention(name);
    source.line("");
    source.line(format!("const R{index}: RecordProbe = RecordProbe {{"));
    source.line(format!("    group: {group:?},"));
    source.line(format!("    name: {name:?},"));
    source.line(format!("    size: size_of::<{name}>(),"));
    source.line(format!("    align: align_of::<{name}>(),"));
    source.line("    rows: &[");
    let mut arms = Vec::new();
    for (number, probe) in record.probes.iter().enumerate() {
        let path = &probe.path;
        if !matches!(probe.how, Reach::Direct(_)) {
            source.mention("Reach");
        }
        let row = match &probe.how {
            Reach::Direct(place) => {
                source.mention("field");
                format!("field!({name}, {path:?}, {place})")
            }
            Reach::Accessors { rust, set, get } => {
                source.mention(rust);
                source.mention("leaf");
                arms.push((number, format!("leaf!(op, {rust}, v, {set}, {get})")));
                format!("({path:?}, Reach::Leaf(size_of::<{rust}>()))")
            }
            Reach::Bits { enumeration, set, get } => {
                if let Some(rust) = enumeration {
                    source.mention(rust);
                }
                source.mention("bits");
                arms.push((number, format!("bits!(op, v, {set}, {get})")));
                format!("({path:?}, Reach::Bits)")
            }
            Reach::Type(rust) => {
                source.mention(rust);
                format!("({path:?}, Reach::Nested(size_of::<{rust}>()))")
            }
            Reach::Dissolved => format!("({path:?}, Reach::Dissolved)"),
        };
        source.line(format!("        {row},"));
    }
    source.line("    ],");
    access(source, name, &arms);
    source.line("};");
}

/// The function that runs the accessors of a record, given the number of each row and what to do for it.
fn access(source: &mut Source, record: &str, arms: &[(usize, String)]) {
    if arms.is_empty() {
        source.line("    access: |_, _, _| {},");
        return;
    }
    source.mention("load");
    source.mention("store");
    source.line("    access: |record, row, op| {");
    source.line(format!("        let mut r: {record} = load(record);"));
    if let [(number, arm)] = arms {
        source.line(format!("        if row == {number} {{"));
        source.line(format!("            {arm}"));
    } else {
        source.line("        match row {");
        for (number, arm) in arms {
            source.line(format!("            {number} => {arm},"));
        }
        source.line("            _ => {}");
    }
    source.line("        }");
    source.line("        store(record, &r);");
    source.line("    },");
}

/// Ends a file to which `count` records were added.
pub fn end(source: &mut Source, count: usize) {
    source.line("");
    source.doc(0, "How to reach every line of the table, record by record.");
    source.line("pub const RECORDS: &[RecordProbe] = &[");
    for index in 0..count {
        source.line(format!("    R{index},"));
    }
    source.line("];");
}

/// The file by which tests see that no name of the tables is missing, and what stands behind it.
pub fn names(facts: &Facts) -> Source {
    let mut source = Source::new("A row for every name of the tables that has no layout.").of_test("wddm_abi");
    let rows =
        ["AliasRow", "CallbackRow", "EnumRow", "MacroRow", "SlotRow", "alias", "callback", "enumeration", "slot"];
    source.import_from("crate::probe", rows.map(str::to_owned).into());
    for name in rows {
        source.mention(name);
    }
    let table = |source: &mut Source, docs: &str, declaration: &str, rows: Vec<String>| {
        source.line("");
        source.doc(0, docs);
        source.line(format!("pub const {declaration} = &["));
        rows.iter().for_each(|row| source.line(format!("    {row},")));
        source.line("];");
    };
    let enums = facts.enums.iter().map(|enumeration| format!("enumeration!({})", enumeration.name)).collect();
    facts.enums.iter().for_each(|enumeration| source.mention(&enumeration.name));
    table(&mut source, "The enumerations.", "ENUMS: &[EnumRow]", enums);

    let constants = facts.macros.iter().map(|constant| format!("(\"{0}\", {0} as i128)", constant.name)).collect();
    facts.macros.iter().for_each(|constant| source.mention(&constant.name));
    table(&mut source, "The macros.", "MACROS: &[MacroRow]", constants);

    let removed = "variants::wddm3_1_22621::";
    let path = |gone: bool, name: &str| format!("{}{name}", if gone { removed } else { "" });
    source.mention("variants");
    let mut callbacks = Vec::new();
    for callback in &facts.callbacks {
        let gone = scope::is_removed(&callback.source);
        if !gone {
            source.mention(&callback.name);
        }
        callbacks.push(format!("callback!({:?}, {})", callback.name, path(gone, &callback.name)));
    }
    table(&mut source, "The callbacks.", "CALLBACKS: &[CallbackRow]", callbacks);

    let gone = |name: &str| {
        let removed = facts.callbacks.iter().filter(|callback| scope::is_removed(&callback.source));
        removed.flat_map(|callback| scope::pointer_names(callback.kind, &callback.name)).any(|pointer| pointer == name)
    };
    let mut aliases = Vec::new();
    for alias in &facts.aliases {
        let gone = gone(&alias.name);
        if !gone {
            source.mention(&alias.name);
        }
        aliases.push(format!("alias!({:?}, {})", alias.name, path(gone, &alias.name)));
    }
    table(&mut source, "The typedefs.", "ALIASES: &[AliasRow]", aliases);

    let mut slots = Vec::new();
    let is_callback = |ctype: &str| {
        facts.callbacks.iter().any(|callback| {
            callback.kind != CallbackKind::Export
                && scope::pointer_names(callback.kind, &callback.name).iter().any(|name| name == ctype)
        })
    };
    for table in &facts.tables {
        source.mention(&table.name);
        for slot in table.slots.iter().filter(|slot| is_callback(&slot.ctype)) {
            source.mention(&slot.ctype);
            slots.push(format!("slot!({}, {}, {})", table.name, slot.member, slot.ctype));
        }
    }
    table(&mut source, "The slots that hold callbacks.", "SLOTS: &[SlotRow]", slots);

    facts.guids.iter().for_each(|row| source.mention(row.text(0)));
    source.mention("GUID");
    let guids = facts.guids.iter().map(|row| format!("(\"{0}\", {0})", row.text(0))).collect();
    table(&mut source, "The GUIDs.", "GUIDS: &[(&str, GUID)]", guids);

    source.mention("kit_28000");
    let mut added = Vec::new();
    for enumeration in &facts.enums_28000 {
        let known = facts.enums.iter().any(|other| other.name == enumeration.name);
        let path = if known { "kit_28000".to_owned() } else { format!("kit_28000::{}", enumeration.name) };
        for value in &enumeration.values {
            let (group, name) = (&enumeration.name, &value.name);
            added.push(format!("({group:?}, {name:?}, {path}::{name}.0 as i128)"));
        }
    }
    for constant in &facts.macros_28000 {
        added.push(format!("(\"#define\", \"{0}\", kit_28000::{0} as i128)", constant.name));
    }
    table(&mut source, "What the 28000 kits add or change.", "KIT_28000: &[(&str, &str, i128)]", added);
    source
}
