//! Emission of the rows by which the tests of `wddm_abi` reach every line of the layout tables.

use crate::lower::Lowered;
use crate::lower::Reach;
use crate::source::Source;

/// Begins a file of rows for the tests.
pub fn begin(docs: &str) -> Source {
    let mut source = Source::new(docs).of_test("wddm_abi");
    source.import_from("crate::probe", ["RecordProbe"].map(str::to_owned).into());
    source.mention("RecordProbe");
    source.line("");
    source.doc(0, "How to reach every line of the table, record by record.");
    source.line("pub const RECORDS: &[RecordProbe] = &[");
    source
}

/// Adds the rows of one record of the table's group `group`.
pub fn add(source: &mut Source, group: &str, record: &Lowered) {
    let name = &record.types[0].name;
    source.mention(name);
    source.line(format!("    record!({group:?}, {name}, ["));
    for probe in &record.probes {
        let path = &probe.path;
        let row = match &probe.how {
            Reach::Direct(place) => format!("field!({name}, {path:?}, {place})"),
            Reach::Accessors { rust, set, get } => {
                source.mention(rust);
                format!("leaf!({name}, {path:?}, {rust}, |r, v| {set}, |r| {get})")
            }
            Reach::Bits { enumeration, set, get } => {
                if let Some(rust) = enumeration {
                    source.mention(rust);
                }
                format!("bits!({name}, {path:?}, |r, v| {set}, |r| {get})")
            }
            Reach::Type(rust) => {
                source.mention(rust);
                format!("nested!({path:?}, {rust})")
            }
            Reach::Dissolved => format!("dissolved!({path:?})"),
        };
        source.line(format!("        {row},"));
    }
    source.line("    ]),");
}

/// Ends such a file.
pub fn end(source: &mut Source) {
    source.line("];");
}
