//! Types and variables of a symbol file.

use pdb2::{FallibleIterator, SymbolData, TypeData, TypeIndex};
use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;

/// A member of a record.
#[derive(Clone, Debug)]
pub struct Member {
    pub name: String,
    pub offset: u64,
    pub of: Type,
}

/// What a type is, as far as an expression asks.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// A structure, union or class, by name.
    Record(String),
    /// A pointer; to nothing that is known: `None`.
    Pointer(Option<Box<Type>>),
    /// Elements, and bytes of all of them.
    Array(Box<Type>, u64),
    /// A number of so many bytes.
    Number(u64),
    /// Anything else.
    Other,
}

/// A record: its members, and its size in bytes.
pub struct Record {
    pub members: Vec<Member>,
    pub size: u64,
}

/// A symbol file.
pub struct Symbols {
    pub records: BTreeMap<String, Record>,
    /// Variables: address relative to the image's base, and type.
    pub variables: BTreeMap<String, (u32, Type)>,
    /// GUID, as symbol servers and debuggers write it, and age.
    pub id: (String, u32),
    /// Text of the visualizer that is linked in.
    pub visualizer: Option<String>,
}

type File<'a> = pdb2::PDB<'a, Cursor<&'a [u8]>>;
type Parsed = HashMap<TypeIndex, Raw>;

/// A type as the file has it.
enum Raw {
    Record { name: String, fields: Option<TypeIndex>, size: u64, is_forward: bool },
    Fields(Vec<(String, TypeIndex, u64)>, Option<TypeIndex>),
    Pointer(TypeIndex),
    Array(TypeIndex, u64),
    Alias(TypeIndex),
}

impl Symbols {
    pub fn of(file: &[u8]) -> pdb2::Result<Self> {
        let mut pdb = pdb2::PDB::open(Cursor::new(file))?;
        let information = pdb.pdb_information()?;
        let guid = information.guid.to_string().to_uppercase();
        let debug = pdb.debug_information()?;
        let age = debug.age().unwrap_or(information.age);
        let parsed = parse(&mut pdb)?;
        let mut records = BTreeMap::new();
        for raw in parsed.values() {
            let Raw::Record { name, fields, size, is_forward: false } = raw else { continue };
            let members = fields.map(|fields| members(fields, &parsed)).unwrap_or_default();
            records.entry(name.clone()).or_insert(Record { members, size: *size });
        }
        let variables = variables(&mut pdb, &parsed)?;
        let names = information.stream_names()?;
        let place = names.iter().find(|stream| stream.name.to_string().ends_with(".natvis"));
        let visualizer = match place {
            Some(stream) => {
                let stream = pdb.raw_stream(stream.stream_id)?;
                stream.map(|stream| String::from_utf8_lossy(stream.as_slice()).into_owned())
            }
            None => None,
        };
        Ok(Self { records, variables, id: (guid, age), visualizer })
    }

    /// A member of a record.
    pub fn member(&self, record: &str, name: &str) -> Option<&Member> {
        self.records.get(record)?.members.iter().find(|member| member.name == name)
    }

    /// Bytes of a type.
    pub fn size(&self, of: &Type) -> Option<u64> {
        match of {
            Type::Record(name) => self.records.get(name).map(|record| record.size),
            Type::Pointer(_) => Some(8),
            Type::Array(_, bytes) => Some(*bytes),
            Type::Number(bytes) => Some(*bytes),
            Type::Other => None,
        }
    }
}

fn parse(pdb: &mut File<'_>) -> pdb2::Result<Parsed> {
    let types = pdb.type_information()?;
    let mut parsed = HashMap::new();
    let mut all = types.iter();
    while let Some(item) = all.next()? {
        let Ok(data) = item.parse() else { continue };
        let raw = match data {
            TypeData::Class(class) => Raw::Record {
                name: class.name.to_string().into_owned(),
                fields: class.fields,
                size: class.size,
                is_forward: class.properties.forward_reference(),
            },
            TypeData::Union(union) => Raw::Record {
                name: union.name.to_string().into_owned(),
                fields: Some(union.fields),
                size: union.size,
                is_forward: union.properties.forward_reference(),
            },
            TypeData::FieldList(list) => {
                let member = |field: &TypeData<'_>| match field {
                    TypeData::Member(member) => {
                        Some((member.name.to_string().into_owned(), member.field_type, member.offset))
                    }
                    _ => None,
                };
                Raw::Fields(list.fields.iter().filter_map(member).collect(), list.continuation)
            }
            TypeData::Pointer(pointer) => Raw::Pointer(pointer.underlying_type),
            TypeData::Array(array) => {
                Raw::Array(array.element_type, array.dimensions.last().copied().unwrap_or(0).into())
            }
            TypeData::Modifier(modifier) => Raw::Alias(modifier.underlying_type),
            TypeData::Enumeration(enumeration) => Raw::Alias(enumeration.underlying_type),
            _ => continue,
        };
        parsed.insert(item.index(), raw);
    }
    Ok(parsed)
}

fn members(fields: TypeIndex, parsed: &Parsed) -> Vec<Member> {
    let Some(Raw::Fields(list, more)) = parsed.get(&fields) else { return Vec::new() };
    let mut found: Vec<_> = list
        .iter()
        .map(|(name, of, offset)| Member { name: name.clone(), offset: *offset, of: type_of(*of, parsed) })
        .collect();
    found.extend(more.map(|more| members(more, parsed)).unwrap_or_default());
    found
}

fn type_of(index: TypeIndex, parsed: &Parsed) -> Type {
    match parsed.get(&index) {
        Some(Raw::Record { name, .. }) => Type::Record(name.clone()),
        Some(Raw::Pointer(to)) => Type::Pointer(Some(Box::new(type_of(*to, parsed)))),
        Some(Raw::Array(of, bytes)) => Type::Array(Box::new(type_of(*of, parsed)), *bytes),
        Some(Raw::Alias(of)) => type_of(*of, parsed),
        Some(Raw::Fields(..)) => Type::Other,
        None => primitive(index),
    }
}

/// Numbers have type indices of their own, below 0x1000.
fn primitive(index: TypeIndex) -> Type {
    let (kind, pointer) = (index.0 & 0xFF, index.0 >> 8 & 0xF);
    let bytes = match kind {
        0x10 | 0x20 | 0x68 | 0x69 | 0x30 | 0x70 | 0x7C => 1,
        0x11 | 0x21 | 0x72 | 0x73 | 0x31 => 2,
        0x12 | 0x22 | 0x74 | 0x75 | 0x32 | 0x40 | 0x7B => 4,
        0x13 | 0x23 | 0x76 | 0x77 | 0x33 | 0x41 => 8,
        _ => 0,
    };
    match (pointer, bytes) {
        (0, 0) => Type::Other,
        (0, bytes) => Type::Number(bytes),
        (_, 0) => Type::Pointer(None),
        (_, bytes) => Type::Pointer(Some(Box::new(Type::Number(bytes)))),
    }
}

fn variables(pdb: &mut File<'_>, parsed: &Parsed) -> pdb2::Result<BTreeMap<String, (u32, Type)>> {
    let places = pdb.address_map()?;
    let mut found = BTreeMap::new();
    let mut note = |symbol: pdb2::Symbol<'_>| {
        if let Ok(SymbolData::Data(data)) = symbol.parse()
            && let Some(at) = data.offset.to_rva(&places)
        {
            found.insert(data.name.to_string().into_owned(), (at.0, type_of(data.type_index, parsed)));
        }
    };
    let globals = pdb.global_symbols()?;
    let mut globals = globals.iter();
    while let Some(symbol) = globals.next()? {
        note(symbol);
    }
    let debug = pdb.debug_information()?;
    let mut modules = debug.modules()?;
    while let Some(module) = modules.next()? {
        let Some(module) = pdb.module_info(&module)? else { continue };
        let mut symbols = module.symbols()?;
        while let Some(symbol) = symbols.next()? {
            note(symbol);
        }
    }
    Ok(found)
}
