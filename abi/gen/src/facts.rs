//! The fact tables, one typed row per line.

use std::path::Path;

use crate::ctype;
use crate::ctype::CType;
use crate::ctype::Parameter;
use crate::tsv;
use crate::tsv::Error;
use crate::tsv::Row;

/// Everything that `abi/facts` says.
pub struct Facts {
    /// `layout.tsv`.
    pub records: Vec<Record>,
    /// `layout_variants.tsv`; [`Record::group`] names the older kit.
    pub variants: Vec<Record>,
    /// `layout_28000.tsv`; [`Record::group`] is `new` or `changed`.
    pub records_28000: Vec<Record>,
    /// `enums.tsv`, enumerations only.
    pub enums: Vec<Enum>,
    /// `enums.tsv`, macros only.
    pub macros: Vec<Constant>,
    /// `enums_28000.tsv`, enumerations only.
    pub enums_28000: Vec<Enum>,
    /// `enums_28000.tsv`, macros only.
    pub macros_28000: Vec<Constant>,
    /// `callbacks.tsv`.
    pub callbacks: Vec<Callback>,
    /// `aliases.tsv`.
    pub aliases: Vec<Alias>,
    /// `ddi_slots.tsv`.
    pub tables: Vec<SlotTable>,
    /// `guids.tsv`.
    pub guids: Vec<Row>,
    /// `bugchecks.tsv`.
    pub bugchecks: Vec<Row>,
    /// `bugcodes.tsv`.
    pub bugcodes: Vec<Row>,
    /// `d3dkmt_exports.tsv`.
    pub exports: Vec<Row>,
    /// `ntstatus.tsv`.
    pub ntstatus: Vec<Row>,
    /// `remarks.tsv`.
    pub remarks: Remarks,
}

/// What is doubtful about a name, or about a member or enumerator of it.
#[derive(Debug, Default)]
pub struct Remarks {
    /// Name, member (none for the name itself), remark, place in the table.
    rows: Vec<(String, Option<String>, String, String)>,
}

impl Remarks {
    /// The remark on `name`.
    pub fn on(&self, name: &str) -> Option<&str> {
        self.rows.iter().find(|row| row.0 == name && row.1.is_none()).map(|row| row.2.as_str())
    }

    /// The remark on the member or enumerator `member` of `name`.
    pub fn on_member(&self, name: &str, member: &str) -> Option<&str> {
        self.rows.iter().find(|row| row.0 == name && row.1.as_deref() == Some(member)).map(|row| row.2.as_str())
    }
}

/// A structure or union with its members in the order of the table.
#[derive(Debug, Clone)]
pub struct Record {
    /// Leading column of the variant tables; empty in the main one.
    pub group: String,
    /// Microsoft's name.
    pub name: String,
    /// Where the table says it.
    pub place: String,
    /// `true` for a union.
    pub union: bool,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Header that declares it; empty in the table of older forms.
    pub header: String,
    /// Source letters, as `facts/README.md` explains them; empty in the table of older forms.
    pub sources: String,
    /// The C tag (`_DXGK_PTE`); empty in the table of older forms.
    pub tag: String,
    /// The members, nested ones included.
    pub members: Vec<MemberRow>,
}

/// A member line of a layout table.
#[derive(Debug, Clone)]
pub struct MemberRow {
    /// Dotted path, `{uN}` and `{sN}` for anonymous unions and structures.
    pub path: String,
    /// Byte offset in the record; of a bit-field: of its storage unit.
    pub offset: u32,
    /// Lowest bit and width of a bit-field.
    pub bits: Option<(u32, u32)>,
    /// Size in bytes; of a bit-field: of its storage unit.
    pub size: u32,
    /// What it is.
    pub kind: MemberKind,
    /// The spelling of the type in the table.
    pub spelling: String,
    /// Where the table says it.
    pub place: String,
}

/// What a member line describes.
#[derive(Debug, Clone)]
pub enum MemberKind {
    /// A structure declared in place.
    Struct,
    /// A union declared in place.
    Union,
    /// A member with a type of its own.
    Typed(CType),
}

/// An enumeration.
#[derive(Debug, Clone)]
pub struct Enum {
    /// Microsoft's name.
    pub name: String,
    /// Enumerators in the order of the table.
    pub values: Vec<Constant>,
}

/// An enumerator or a macro.
#[derive(Debug, Clone)]
pub struct Constant {
    /// Microsoft's name.
    pub name: String,
    /// The value as C's int (or as an unsigned number where it does not fit).
    pub value: i128,
    /// The source column.
    pub source: String,
    /// Where the table says it.
    pub place: String,
}

/// How C declares a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallbackKind {
    /// `typedef NTSTATUS DXGKDDI_X(...)`: the name is the function's type, the pointer is `PDXGKDDI_X`.
    Function,
    /// `typedef NTSTATUS (*DXGKCB_X)(...)`: the name is a pointer that may be NULL.
    Pointer,
    /// An exported function.
    Export,
}

/// A line of `callbacks.tsv`.
#[derive(Debug, Clone)]
pub struct Callback {
    /// Microsoft's name.
    pub name: String,
    /// How C declares it.
    pub kind: CallbackKind,
    /// What it returns.
    pub returns: CType,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// IRQL by the documentation.
    pub irql_docs: Option<String>,
    /// IRQL by the annotations of the 22621 headers.
    pub irql_header: Option<String>,
    /// First system, by the documentation.
    pub since: Option<String>,
    /// The source column.
    pub source: String,
    /// Where the table says it.
    pub place: String,
}

/// A line of `aliases.tsv`.
#[derive(Debug, Clone)]
pub struct Alias {
    /// The typedef's name.
    pub name: String,
    /// What it stands for.
    pub target: CType,
    /// Its spelling in the table.
    pub spelling: String,
    /// Where the table says it.
    pub place: String,
}

/// A function table: its slots in order, its size, and its size at older interface versions.
#[derive(Debug, Clone, Default)]
pub struct SlotTable {
    /// Microsoft's name.
    pub name: String,
    /// The slots.
    pub slots: Vec<Slot>,
    /// Total size in bytes.
    pub size: u32,
    /// (macro, value, bytes) per interface version, in the order of the table.
    pub sizes: Vec<(String, Option<u32>, u32)>,
}

/// One slot of a function table.
#[derive(Debug, Clone)]
pub struct Slot {
    /// Its number.
    pub index: u32,
    /// Its byte offset.
    pub offset: u32,
    /// The member's name.
    pub member: String,
    /// The type as the table spells it.
    pub ctype: String,
    /// The interface version that brought it: macro and value.
    pub guard: Option<(String, u32)>,
    /// First system, by the documentation.
    pub documented: Option<String>,
    /// A remark.
    pub note: Option<String>,
}

impl Facts {
    /// Reads all tables in `directory`.
    pub fn read(directory: &Path) -> Result<Self, Error> {
        let table = |name: &str, columns| tsv::read(&directory.join(name), columns);
        let (enums, macros) = read_enums(&table("enums.tsv", 4)?, |row| Ok((0, row.text(3).to_owned())))?;
        let remarks = table("remarks.tsv", 3)?
            .iter()
            .map(|row| {
                (row.text(0).to_owned(), row.optional(1).map(str::to_owned), row.text(2).to_owned(), row.place.clone())
            })
            .collect();
        let (enums_28000, macros_28000) =
            read_enums(&table("enums_28000.tsv", 4)?, |row| Ok((1, row.text(0).to_owned())))?;
        let facts = Self {
            records: read_records(&table("layout.tsv", 7)?, false)?,
            variants: read_records(&table("layout_variants.tsv", 8)?, true)?,
            records_28000: read_records(&table("layout_28000.tsv", 8)?, true)?,
            enums,
            macros,
            enums_28000,
            macros_28000,
            callbacks: table("callbacks.tsv", 8)?.iter().map(read_callback).collect::<Result<_, _>>()?,
            aliases: table("aliases.tsv", 3)?.iter().map(read_alias).collect::<Result<_, _>>()?,
            tables: read_tables(&table("ddi_slots.tsv", 9)?)?,
            guids: table("guids.tsv", 3)?,
            bugchecks: table("bugchecks.tsv", 4)?,
            bugcodes: table("bugcodes.tsv", 2)?,
            exports: table("d3dkmt_exports.tsv", 5)?,
            ntstatus: table("ntstatus.tsv", 2)?,
            remarks: Remarks { rows: remarks },
        };
        facts.check_remarks()?;
        Ok(facts)
    }

    /// A remark on something that is not there would be lost silently.
    fn check_remarks(&self) -> Result<(), Error> {
        for (name, member, _, place) in &self.remarks.rows {
            let record = self.records.iter().find(|record| record.name == *name);
            let enumeration = self.enums.iter().find(|enumeration| enumeration.name == *name);
            let found = match member {
                None => {
                    record.is_some()
                        || self.macros.iter().any(|constant| constant.name == *name)
                        || self.callbacks.iter().any(|callback| callback.name == *name)
                }
                Some(member) => {
                    record.is_some_and(|record| record.members.iter().any(|row| row.path == *member))
                        || enumeration.is_some_and(|all| all.values.iter().any(|value| value.name == *member))
                }
            };
            if !found {
                return Err(Error::new(format!("`{name}` is in no table, or has no such member")).at(place));
            }
        }
        Ok(())
    }
}

fn read_records(rows: &[Row], grouped: bool) -> Result<Vec<Record>, Error> {
    let first = usize::from(grouped);
    let mut records: Vec<Record> = Vec::new();
    for row in rows {
        let group = if grouped { row.text(0) } else { "" };
        let name = row.text(first);
        if row.text(first + 1) == "@record" {
            records.push(read_record(row, group, name, first)?);
            continue;
        }
        let record = records
            .last_mut()
            .filter(|record| record.name == name && record.group == group)
            .ok_or_else(|| Error::new("member line outside its record").at(&row.place))?;
        let bits = match row.optional(first + 3) {
            None => None,
            Some(_) => Some((row.size(first + 3)?, row.size(first + 4)?)),
        };
        let spelling = row.text(first + 6);
        let kind = match spelling {
            "struct" => MemberKind::Struct,
            "union" => MemberKind::Union,
            other => {
                MemberKind::Typed(ctype::parse(other.trim_start_matches('~')).map_err(|error| error.at(&row.place))?)
            }
        };
        record.members.push(MemberRow {
            path: row.text(first + 1).to_owned(),
            offset: row.size(first + 2)?,
            bits,
            size: row.size(first + 5)?,
            kind,
            spelling: spelling.to_owned(),
            place: row.place.clone(),
        });
    }
    Ok(records)
}

fn read_record(row: &Row, group: &str, name: &str, first: usize) -> Result<Record, Error> {
    let mut words = row.text(first + 6).split(' ');
    let union = match words.next() {
        Some("struct") => false,
        Some("union") => true,
        _ => return Err(Error::new("neither struct nor union").at(&row.place)),
    };
    let mut record = Record {
        group: group.to_owned(),
        name: name.to_owned(),
        place: row.place.clone(),
        union,
        size: row.size(first + 5)?,
        align: 0,
        header: String::new(),
        sources: String::new(),
        tag: String::new(),
        members: Vec::new(),
    };
    for word in words {
        match word.split_once('=') {
            Some(("align", value)) => {
                record.align = value.parse().map_err(|_| Error::new("alignment").at(&row.place))?;
            }
            Some(("hdr", value)) => record.header = value.to_owned(),
            Some(("src", value)) => record.sources = value.to_owned(),
            Some(("tag", value)) => record.tag = value.to_owned(),
            _ => return Err(Error::new(format!("unknown word `{word}`")).at(&row.place)),
        }
    }
    Ok(record)
}

/// Splits an enum table into enumerations and macros, dropping repeated lines.
fn read_enums(
    rows: &[Row],
    shape: impl Fn(&Row) -> Result<(usize, String), Error>,
) -> Result<(Vec<Enum>, Vec<Constant>), Error> {
    let mut enums: Vec<Enum> = Vec::new();
    let mut macros: Vec<Constant> = Vec::new();
    for row in rows {
        let (first, source) = shape(row)?;
        let constant = Constant {
            name: row.text(first + 1).to_owned(),
            value: row.number(first + 2)?,
            source,
            place: row.place.clone(),
        };
        let group = row.text(first);
        let list = if group.starts_with("#define") {
            &mut macros
        } else if let Some(position) = enums.iter().position(|e| e.name == group) {
            &mut enums[position].values
        } else {
            enums.push(Enum { name: group.to_owned(), values: Vec::new() });
            let last = enums.len() - 1;
            &mut enums[last].values
        };
        match list.iter().find(|known| known.name == constant.name) {
            None => list.push(constant),
            Some(known) if known.value == constant.value => {}
            Some(known) => {
                return Err(
                    Error::new(format!("`{}` has another value at {}", constant.name, known.place)).at(&constant.place)
                );
            }
        }
    }
    Ok((enums, macros))
}

fn read_callback(row: &Row) -> Result<Callback, Error> {
    let at = |error: Error| error.at(&row.place);
    let own = |index| row.optional(index).map(str::to_owned);
    Ok(Callback {
        name: row.text(0).to_owned(),
        kind: match row.text(1) {
            "function-type" => CallbackKind::Function,
            "pointer-type" => CallbackKind::Pointer,
            "export/thunk" => CallbackKind::Export,
            other => return Err(at(Error::new(format!("unknown kind `{other}`")))),
        },
        returns: ctype::parse(row.text(2)).map_err(at)?,
        parameters: ctype::parse_parameters(row.text(3)).map_err(at)?,
        irql_docs: own(4),
        irql_header: own(5),
        since: own(6),
        source: row.text(7).to_owned(),
        place: row.place.clone(),
    })
}

fn read_alias(row: &Row) -> Result<Alias, Error> {
    Ok(Alias {
        name: row.text(0).to_owned(),
        target: ctype::parse(row.text(1)).map_err(|error| error.at(&row.place))?,
        spelling: row.text(1).to_owned(),
        place: row.place.clone(),
    })
}

fn read_tables(rows: &[Row]) -> Result<Vec<SlotTable>, Error> {
    let mut tables: Vec<SlotTable> = Vec::new();
    for row in rows {
        let name = row.text(0);
        let position = tables.iter().position(|table| table.name == name).unwrap_or_else(|| {
            tables.push(SlotTable { name: name.to_owned(), ..SlotTable::default() });
            tables.len() - 1
        });
        let table = &mut tables[position];
        let guard_value = row.optional(6).map(|_| row.size(6)).transpose()?;
        match row.text(3) {
            "@end" => table.size = row.size(2)?,
            "@size_at" => table.sizes.push((row.text(4).to_owned(), guard_value, row.size(2)?)),
            member => table.slots.push(Slot {
                index: row.size(1)?,
                offset: row.size(2)?,
                member: member.to_owned(),
                ctype: row.text(4).to_owned(),
                guard: row.optional(5).map(str::to_owned).zip(guard_value),
                documented: row.optional(7).map(str::to_owned),
                note: row.optional(8).map(str::to_owned),
            }),
        }
    }
    Ok(tables)
}
