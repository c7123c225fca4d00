//! What a record becomes in Rust: types, their members, their accessors, and how tests reach each of them.

use crate::scope::Class;
use crate::scope::RustType;

/// A Rust structure or union to emit.
#[derive(Debug)]
pub struct TypeDef {
    /// Its name.
    pub name: String,
    /// The path in the record of what was declared in place; empty for the record itself.
    pub path: String,
    /// `true` for a union.
    pub union: bool,
    /// `packed(N)`.
    pub packed: Option<u32>,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Its members, padding included.
    pub members: Vec<Member>,
    /// Its methods.
    pub accessors: Vec<Accessor>,
}

impl TypeDef {
    /// `true` for a structure that is one integer with bit-fields: it is passed by value and printed bit by bit.
    pub fn is_flags(&self) -> bool {
        !self.union
            && self.members.len() == 1
            && matches!(self.members[0].rust.class, Class::Integer { signed: false })
            && !self.accessors.is_empty()
    }
}

/// A member of a Rust structure or union.
#[derive(Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its offset in the type that holds it.
    pub offset: u32,
    /// Its type.
    pub rust: RustType,
    /// What it is.
    pub role: Role,
}

/// What a member of a Rust type is in C.
#[derive(Debug, Clone)]
pub enum Role {
    /// A member; with its offset in the record and its spelling there.
    Named {
        /// Offset in the record.
        offset: u32,
        /// The type as the table spells it.
        spelling: String,
    },
    /// A storage unit of bit-fields; with its offset in the record.
    Unit(u32),
    /// An anonymous union; with its offset in the record.
    Anonymous(u32),
    /// Padding, or the bytes of a union.
    Filler,
}

/// A getter and what goes with it.
#[derive(Debug)]
pub struct Accessor {
    /// The member's name.
    pub name: String,
    /// Its offset in the record.
    pub offset: u32,
    /// How the value is reached.
    pub kind: Access,
}

/// How an accessor reaches its value.
#[derive(Debug)]
pub enum Access {
    /// A member.
    Whole {
        /// Where it is.
        place: Place,
        /// Whether `place` is the union that holds it rather than the member itself.
        in_union: bool,
        /// Its type.
        rust: RustType,
        /// Whether it can be borrowed.
        by_reference: bool,
        /// The type as the table spells it.
        spelling: String,
    },
    /// A bit-field.
    Bits {
        /// Where its storage unit is.
        place: Place,
        /// Whether `place` is the union that holds the unit rather than the unit itself.
        in_union: bool,
        /// Bytes of the unit.
        unit: u32,
        /// Lowest bit.
        shift: u32,
        /// Number of bits.
        width: u32,
        /// The enumeration it holds, if it is one.
        enumeration: Option<RustType>,
    },
}

/// A way from `self` to a place inside it.
#[derive(Debug, Clone, Default)]
pub struct Place(Vec<Step>);

/// One step of such a way.
#[derive(Debug, Clone)]
pub enum Step {
    /// To a field.
    Field(String),
    /// From a union to its member of this type.
    View(String),
}

impl Place {
    /// The place one step further.
    #[must_use]
    pub fn then(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// Whether the place is `self`.
    pub fn is_self(&self) -> bool {
        self.0.is_empty()
    }

    fn expression(&self, view: &str, borrow: &str) -> String {
        self.0.iter().fold("self".to_owned(), |place, step| match step {
            Step::Field(name) => format!("{place}.{name}"),
            Step::View(rust) if place == "self" => format!("plain::{view}::<_, {rust}>(self)"),
            Step::View(rust) => format!("plain::{view}::<_, {rust}>({borrow}{place})"),
        })
    }

    /// The place as an expression, for reading.
    pub fn read(&self) -> String {
        self.expression("view", "&")
    }

    /// The place as an expression, for writing.
    pub fn write(&self) -> String {
        self.expression("view_mut", "&mut ")
    }

    /// A shared reference to the place.
    pub fn borrow(&self) -> String {
        if self.is_self() { "self".to_owned() } else { format!("&{}", self.read()) }
    }

    /// An exclusive reference to the place.
    pub fn borrow_mut(&self) -> String {
        if self.is_self() { "self".to_owned() } else { format!("&mut {}", self.write()) }
    }
}

/// How a test reaches one line of the table.
#[derive(Debug)]
pub struct Probe {
    /// The path of the line.
    pub path: String,
    /// How to reach it.
    pub how: Reach,
}

/// How a test reaches one member.
#[derive(Debug)]
pub enum Reach {
    /// `offset_of!(Record, expression)`.
    Direct(String),
    /// By a setter and a getter on `r`, with the member's type.
    Accessors {
        /// The type.
        rust: String,
        /// A statement that stores `v`.
        set: String,
        /// An expression that loads the value.
        get: String,
    },
    /// A bit-field, by a statement that stores `v` and an expression that loads it, both as `u64`.
    Bits {
        /// The enumeration that both need, if it is one.
        enumeration: Option<String>,
        /// A statement that stores `v`.
        set: String,
        /// An expression that loads the value.
        get: String,
    },
    /// Declared in place, with a Rust type of its own.
    Type(String),
    /// Declared in place, dissolved into what is around it.
    Dissolved,
}

/// A record in Rust.
#[derive(Debug)]
pub struct Lowered {
    /// The types: the record first, then what was declared inside it.
    pub types: Vec<TypeDef>,
    /// How to reach each line of the table.
    pub probes: Vec<Probe>,
}

/// A member name as a Rust identifier.
pub fn field_name(name: &str) -> String {
    const KEYWORDS: &[&str] = &[
        "as", "async", "await", "box", "break", "const", "continue", "do", "dyn", "else", "enum", "extern", "final",
        "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override",
        "priv", "pub", "ref", "return", "static", "struct", "trait", "try", "type", "typeof", "unsafe", "unsized",
        "use", "virtual", "where", "while", "yield",
    ];
    if KEYWORDS.contains(&name) { format!("r#{name}") } else { name.to_owned() }
}
