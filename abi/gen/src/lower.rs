//! From a record of the table to Rust types.
//!
//! Where C and Rust differ, this is what happens:
//!
//! * **Padding** becomes a member, everywhere. So no Rust type here has padding of its own, every byte of every value
//!   is initialised, and an offset that C gets from a rule (alignment, `#pragma pack`, a new bit-field unit) is simply
//!   the offset of the table. A union gets a member that covers all its bytes, for the same reason.
//! * **Packing**: where the tabled alignment is below the natural one, the record is `packed(alignment)`, and so is
//!   what is declared inside it.
//! * **Bit-fields** become an unsigned integer per storage unit (the table says where each unit starts) and accessors.
//! * A union of **one integer and bit-fields over all of it** (`struct { UINT A : 1; … }; UINT Value;`) is that integer
//!   and the accessors; where it has no name of its own it dissolves into the structure around it.
//! * An **anonymous structure in a structure** and an **anonymous union in a union** dissolve too: their members are
//!   the outer one's, as in C.
//! * Other anonymous aggregates get the names `u0`, `s0`, … of the table, and the nearest named aggregate around them
//!   (the record, mostly) gets accessors for the members inside.
//! * A mark `~` (type approximate, layout certain) is passed on in the documentation.

use std::collections::BTreeSet;

use crate::facts::MemberKind;
use crate::facts::MemberRow;
use crate::facts::Record;
use crate::scope::Class;
use crate::scope::RustType;
use crate::scope::Scope;
use crate::shape::Access;
use crate::shape::Accessor;
use crate::shape::Lowered;
use crate::shape::Member;
use crate::shape::Place;
use crate::shape::Probe;
use crate::shape::Reach;
use crate::shape::Role;
use crate::shape::Step;
use crate::shape::TypeDef;
use crate::shape::field_name;
use crate::tree;
use crate::tree::Aggregate;
use crate::tree::Node;
use crate::tsv::Error;

/// Lowers `record` with the names of `scope`.
pub fn lower(record: &Record, scope: &Scope) -> Result<Lowered, Error> {
    lower_record(record, scope).map_err(|error| error.at(format_args!("{}, {}", record.place, record.name)))
}

fn lower_record(record: &Record, scope: &Scope) -> Result<Lowered, Error> {
    let root = tree::build(record)?;
    let natural = natural_alignment(&root, scope)?;
    if natural < record.align {
        return Err(Error::new(format!("alignment {} above the natural {natural}", record.align)));
    }
    let packed = (natural > record.align).then_some(record.align);
    let mut lowering = Lowering { scope, packed, types: Vec::new(), probes: Vec::new() };
    let host = Host {
        name: record.name.clone(),
        direct: Some(String::new()),
        read: "r".to_owned(),
        write: "r".to_owned(),
        accessors: Vec::new(),
    };
    lowering.host(&root, host)?;
    lowering.types.sort_by_key(|def| !def.path.is_empty());
    Ok(Lowered { types: lowering.types, probes: lowering.probes })
}

/// The largest alignment of anything inside.
fn natural_alignment(aggregate: &Aggregate<'_>, scope: &Scope) -> Result<u32, Error> {
    let mut align = 1;
    for node in &aggregate.children {
        align = align.max(match node {
            Node::Leaf(_, row) if row.bits.is_some() => row.size,
            Node::Leaf(_, row) => leaf_type(row, scope)?.align,
            Node::Aggregate(child) => natural_alignment(child, scope)?,
        });
    }
    Ok(align)
}

fn leaf_type(row: &MemberRow, scope: &Scope) -> Result<RustType, Error> {
    let MemberKind::Typed(ctype) = &row.kind else {
        return Err(Error::new("an aggregate where a member was expected").at(&row.place));
    };
    let rust = scope.resolve(ctype).map_err(|error| error.at(&row.place))?;
    if row.bits.is_none() && rust.size != row.size {
        return Err(
            Error::new(format!("`{}` has {} bytes, the table says {}", rust.text, rust.size, row.size)).at(&row.place)
        );
    }
    Ok(rust)
}

/// A named aggregate while its members are lowered: it gets the accessors, and tests reach it by these expressions.
struct Host {
    name: String,
    direct: Option<String>,
    read: String,
    write: String,
    accessors: Vec<Accessor>,
}

/// A Rust type while its members are lowered.
struct Body {
    name: String,
    union: bool,
    base: u32,
    members: Vec<Member>,
    unit: Option<(u32, u32)>,
    units: u32,
}

impl Body {
    fn new(name: String, union: bool, base: u32) -> Self {
        Self { name, union, base, members: Vec::new(), unit: None, units: 0 }
    }

    fn push(&mut self, name: String, offset: u32, rust: RustType, role: Role) {
        self.unit = None;
        self.members.push(Member { name, offset: offset - self.base, rust, role });
    }

    /// The storage unit of a bit-field, made if the last member is not it. In a union every bit-field has its own.
    fn unit(&mut self, row: &MemberRow) -> String {
        if self.union || self.unit != Some((row.offset, row.size)) {
            let name = format!("bits{}", self.units);
            self.units += 1;
            self.push(name, row.offset, RustType::unsigned(row.size), Role::Unit(row.offset));
            self.unit = Some((row.offset, row.size));
        }
        self.members[self.members.len() - 1].name.clone()
    }
}

struct Lowering<'a> {
    scope: &'a Scope,
    packed: Option<u32>,
    types: Vec<TypeDef>,
    probes: Vec<Probe>,
}

impl Lowering<'_> {
    /// Lowers a named aggregate to a type of the host's name.
    fn host(&mut self, aggregate: &Aggregate<'_>, mut host: Host) -> Result<RustType, Error> {
        let mut body = Body::new(host.name.clone(), aggregate.union, aggregate.offset);
        if aggregate.union && self.integer_with_bits(aggregate)?.is_some() {
            body.union = false;
            self.integer(aggregate, &mut body, &Place::default(), &mut host)?;
        } else if aggregate.union {
            self.union_members(aggregate, &mut body, &Place::default(), &mut host, "")?;
        } else {
            self.struct_members(aggregate, &mut body, &Place::default(), &mut host, "")?;
        }
        self.finish(aggregate, body, host.accessors)
    }

    /// Pads `body` and makes it a type.
    fn finish(&mut self, aggregate: &Aggregate<'_>, body: Body, accessors: Vec<Accessor>) -> Result<RustType, Error> {
        let name = body.name;
        let limit = self.packed.unwrap_or(u32::MAX);
        let align = body.members.iter().map(|member| member.rust.align.min(limit)).max().unwrap_or(1);
        let failed = |what: String| Err(Error::new(format!("`{name}`: {what}")));
        if !aggregate.size.is_multiple_of(align) {
            return failed(format!("size {} is no multiple of its alignment {align}", aggregate.size));
        }
        let mut members = Vec::new();
        let mut end = 0;
        for member in body.members {
            if !member.offset.is_multiple_of(member.rust.align.min(limit)) {
                return failed(format!("`{}` is misaligned at {}", member.name, member.offset));
            }
            if body.union {
                if member.offset != 0 || member.rust.size > aggregate.size {
                    return failed(format!("`{}` does not fit the union", member.name));
                }
            } else {
                if member.offset < end {
                    return failed(format!("`{}` overlaps the member before it", member.name));
                }
                members.extend(padding(end, member.offset));
                end = member.offset + member.rust.size;
            }
            members.push(member);
        }
        if body.union {
            let rust = RustType::bytes(aggregate.size);
            members.push(Member { name: "_bytes".to_owned(), offset: 0, rust, role: Role::Filler });
        } else if end > aggregate.size {
            return failed(format!("members end at {end}, the table says {}", aggregate.size));
        } else {
            members.extend(padding(end, aggregate.size));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = accessors.iter().find(|accessor| !names.insert(&accessor.name)) {
            return failed(format!("two members are called `{}`", twice.name));
        }
        let rust = RustType { text: name.clone(), size: aggregate.size, align, class: Class::Aggregate };
        self.types.push(TypeDef {
            name,
            path: aggregate.row.map(|row| row.path.clone()).unwrap_or_default(),
            union: body.union,
            packed: self.packed,
            size: aggregate.size,
            align,
            members,
            accessors,
        });
        Ok(rust)
    }

    fn probe(&mut self, row: &MemberRow, how: Reach) {
        self.probes.push(Probe { path: row.path.clone(), how });
    }

    /// Lowers the members of a structure. `place` leads to it from the host; `prefix` is for what dissolved into it.
    fn struct_members(
        &mut self,
        aggregate: &Aggregate<'_>,
        body: &mut Body,
        place: &Place,
        host: &mut Host,
        prefix: &str,
    ) -> Result<(), Error> {
        for node in &aggregate.children {
            match node {
                Node::Leaf(name, row) if row.bits.is_some() => {
                    let unit = body.unit(row);
                    self.bits(name, row, place.then(Step::Field(unit)), false, host)?;
                }
                Node::Leaf(name, row) => {
                    let rust = leaf_type(row, self.scope)?;
                    let member = place.then(Step::Field(field_name(name)));
                    self.leaf(name, row, member, !place.is_self(), rust.clone(), host)?;
                    body.push(field_name(name), row.offset, rust, named(row));
                }
                Node::Aggregate(child) if child.anonymous && !child.union => {
                    self.dissolve(child);
                    body.unit = None;
                    self.struct_members(child, body, place, host, &format!("{prefix}{}_", child.name))?;
                    body.unit = None;
                }
                Node::Aggregate(child) if child.anonymous => {
                    if self.integer_with_bits(child)?.is_some() {
                        self.dissolve(child);
                        self.integer(child, body, place, host)?;
                        continue;
                    }
                    let member = format!("{prefix}{}", child.name);
                    let name = format!("{}_{member}", body.name);
                    let rust = self.anonymous_union(child, name, place.then(Step::Field(member.clone())), host)?;
                    body.push(member, child.offset, rust, Role::Anonymous(child.offset));
                }
                Node::Aggregate(child) => {
                    let member = place.then(Step::Field(field_name(child.name)));
                    let rust = self.nested(child, host, !place.is_self())?;
                    if !place.is_self() {
                        self.whole(child.name, child.offset, member, false, rust.clone(), child.spelling(), host);
                    }
                    let spelling = child.spelling().to_owned();
                    let role = Role::Named { offset: child.offset, spelling };
                    body.push(field_name(child.name), child.offset, rust, role);
                }
            }
        }
        Ok(())
    }

    /// Lowers an anonymous union to which `place` leads to a type called `name`.
    fn anonymous_union(
        &mut self,
        union: &Aggregate<'_>,
        name: String,
        place: Place,
        host: &mut Host,
    ) -> Result<RustType, Error> {
        if let Some(row) = union.row {
            self.probe(row, Reach::Type(name.clone()));
        }
        let mut body = Body::new(name, true, union.offset);
        self.union_members(union, &mut body, &place, host, "")?;
        self.finish(union, body, Vec::new())
    }

    /// Lowers the members of a union to which `place` leads.
    fn union_members(
        &mut self,
        union: &Aggregate<'_>,
        body: &mut Body,
        place: &Place,
        host: &mut Host,
        prefix: &str,
    ) -> Result<(), Error> {
        for node in &union.children {
            match node {
                Node::Leaf(name, row) if row.bits.is_some() => {
                    body.unit(row);
                    self.bits(name, row, place.clone(), true, host)?;
                }
                Node::Leaf(name, row) => {
                    let rust = leaf_type(row, self.scope)?;
                    self.union_leaf(name, row, place.clone(), rust.clone(), host)?;
                    body.push(field_name(name), row.offset, rust, named(row));
                }
                Node::Aggregate(child) if child.anonymous && child.union => {
                    self.dissolve(child);
                    self.union_members(child, body, place, host, &format!("{prefix}{}_", child.name))?;
                }
                Node::Aggregate(child) if child.anonymous && is_one_unit(child) => {
                    self.dissolve(child);
                    for node in &child.children {
                        let Node::Leaf(name, row) = node else { continue };
                        if body.unit != Some((row.offset, row.size)) {
                            body.unit(row);
                            body.unit = Some((row.offset, row.size));
                        }
                        self.bits(name, row, place.clone(), true, host)?;
                    }
                    body.unit = None;
                }
                Node::Aggregate(child) if child.anonymous => {
                    let member = format!("{prefix}{}", child.name);
                    let name = format!("{}_{member}", body.name);
                    if let Some(row) = child.row {
                        self.probe(row, Reach::Type(name.clone()));
                    }
                    let inside = place.then(Step::View(name.clone()));
                    let mut inner = Body::new(name, false, child.offset);
                    self.struct_members(child, &mut inner, &inside, host, "")?;
                    let rust = self.finish(child, inner, Vec::new())?;
                    body.push(member, child.offset, rust, Role::Anonymous(child.offset));
                }
                Node::Aggregate(child) => {
                    let rust = self.nested(child, host, true)?;
                    let (name, offset) = (child.name, child.offset);
                    self.whole(name, offset, place.clone(), true, rust.clone(), child.spelling(), host);
                    let spelling = child.spelling().to_owned();
                    body.push(field_name(name), offset, rust, Role::Named { offset, spelling });
                }
            }
        }
        Ok(())
    }

    /// A named aggregate inside `host`, itself a host.
    fn nested(&mut self, child: &Aggregate<'_>, host: &Host, by_accessor: bool) -> Result<RustType, Error> {
        let name = format!("{}_{}", host.name, child.name);
        let field = field_name(child.name);
        let (direct, read, write) = if by_accessor {
            (None, format!("{}.{field}()", host.read), format!("{}.{}_mut()", host.write, child.name))
        } else {
            let direct = host.direct.as_ref().map(|path| format!("{path}{field}."));
            (direct, format!("{}.{field}", host.read), format!("{}.{field}", host.write))
        };
        if let Some(row) = child.row {
            self.probe(row, Reach::Type(name.clone()));
        }
        self.host(child, Host { name, direct, read, write, accessors: Vec::new() })
    }

    fn dissolve(&mut self, aggregate: &Aggregate<'_>) {
        if let Some(row) = aggregate.row {
            self.probe(row, Reach::Dissolved);
        }
    }

    /// The integer of a union that is one integer with bit-fields over all of it.
    fn integer_with_bits<'a>(&self, union: &'a Aggregate<'a>) -> Result<Option<(&'a str, &'a MemberRow)>, Error> {
        let mut integer = None;
        let mut bits = false;
        for node in &union.children {
            match node {
                Node::Leaf(name, row) if row.bits.is_none() => {
                    let class = leaf_type(row, self.scope)?.class;
                    if integer.is_some() || row.size != union.size || class != (Class::Integer { signed: false }) {
                        return Ok(None);
                    }
                    integer = Some((*name, *row));
                }
                Node::Leaf(_, row) if row.size == union.size => bits = true,
                Node::Aggregate(child)
                    if child.anonymous && !child.union && is_one_unit(child) && child.size == union.size =>
                {
                    bits = true;
                }
                _ => return Ok(None),
            }
        }
        Ok(integer.filter(|_| bits))
    }

    /// Lowers such a union: the integer is a member of `body`.
    fn integer(&mut self, union: &Aggregate<'_>, body: &mut Body, place: &Place, host: &mut Host) -> Result<(), Error> {
        let Some((name, row)) = self.integer_with_bits(union)? else {
            return Err(Error::new("no integer with bit-fields"));
        };
        let rust = leaf_type(row, self.scope)?;
        let member = place.then(Step::Field(field_name(name)));
        for node in &union.children {
            match node {
                Node::Leaf(name, row) if row.bits.is_some() => self.bits(name, row, member.clone(), false, host)?,
                Node::Leaf(..) => {}
                Node::Aggregate(child) => {
                    self.dissolve(child);
                    for node in &child.children {
                        let Node::Leaf(name, row) = node else { continue };
                        self.bits(name, row, member.clone(), false, host)?;
                    }
                }
            }
        }
        self.leaf(name, row, member, !place.is_self(), rust.clone(), host)?;
        body.push(field_name(name), row.offset, rust, named(row));
        Ok(())
    }

    /// A member of a structure: a public field, or behind accessors if a union is on the way.
    fn leaf(
        &mut self,
        name: &str,
        row: &MemberRow,
        place: Place,
        behind_union: bool,
        rust: RustType,
        host: &mut Host,
    ) -> Result<(), Error> {
        let field = field_name(name);
        if behind_union {
            self.forbid_function(row, &rust)?;
            self.accessor_probe(row, &field, name, &rust, host);
            self.whole(name, row.offset, place, false, rust, &row.spelling, host);
            return Ok(());
        }
        let how = match &host.direct {
            Some(path) => Reach::Direct(format!("{path}{field}")),
            None => {
                self.forbid_function(row, &rust)?;
                Reach::Accessors {
                    rust: rust.text,
                    set: format!("{}.{field} = v", host.write),
                    get: format!("{}.{field}", host.read),
                }
            }
        };
        self.probe(row, how);
        Ok(())
    }

    fn union_leaf(
        &mut self,
        name: &str,
        row: &MemberRow,
        place: Place,
        rust: RustType,
        host: &mut Host,
    ) -> Result<(), Error> {
        self.forbid_function(row, &rust)?;
        self.accessor_probe(row, &field_name(name), name, &rust, host);
        self.whole(name, row.offset, place, true, rust, &row.spelling, host);
        Ok(())
    }

    /// A function pointer that shares bytes with data could be read as one by safe code; none does today.
    fn forbid_function(&self, row: &MemberRow, rust: &RustType) -> Result<(), Error> {
        if rust.class == Class::Function {
            return Err(Error::new("a function pointer inside a union").at(&row.place));
        }
        Ok(())
    }

    fn accessor_probe(&mut self, row: &MemberRow, field: &str, name: &str, rust: &RustType, host: &Host) {
        let star = if self.by_reference(rust) { "*" } else { "" };
        let how = Reach::Accessors {
            rust: rust.text.clone(),
            set: format!("{}.set_{name}(v)", host.write),
            get: format!("{star}{}.{field}()", host.read),
        };
        self.probe(row, how);
    }

    fn by_reference(&self, rust: &RustType) -> bool {
        rust.class == Class::Aggregate && self.packed.is_none_or(|limit| rust.align <= limit)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one `Accessor`, gathered in one place")]
    fn whole(
        &mut self,
        name: &str,
        offset: u32,
        place: Place,
        in_union: bool,
        rust: RustType,
        spelling: &str,
        host: &mut Host,
    ) {
        let by_reference = self.by_reference(&rust);
        let kind = Access::Whole { place, in_union, rust, by_reference, spelling: spelling.to_owned() };
        host.accessors.push(Accessor { name: name.to_owned(), offset, kind });
    }

    fn bits(
        &mut self,
        name: &str,
        row: &MemberRow,
        place: Place,
        in_union: bool,
        host: &mut Host,
    ) -> Result<(), Error> {
        let Some((shift, width)) = row.bits else {
            return Err(Error::new("not a bit-field").at(&row.place));
        };
        if width == 0 || shift + width > row.size * 8 {
            return Err(Error::new("bit-field outside its unit").at(&row.place));
        }
        let rust = leaf_type(row, self.scope)?;
        let enumeration = matches!(rust.class, Class::Enum { .. }).then_some(rust);
        let (load, store) = match &enumeration {
            Some(rust) => (".0 as u64", format!("{}(v as _)", rust.text)),
            None if width == 1 => ("", "v != 0".to_owned()),
            None => ("", "v as _".to_owned()),
        };
        let how = Reach::Bits {
            enumeration: enumeration.as_ref().map(|rust| rust.text.clone()),
            set: format!("{}.set_{name}({store})", host.write),
            get: format!("{}.{}(){load}", host.read, field_name(name)),
        };
        self.probe(row, how);
        let kind = Access::Bits { place, in_union, unit: row.size, shift, width, enumeration };
        host.accessors.push(Accessor { name: name.to_owned(), offset: row.offset, kind });
        Ok(())
    }
}

impl Aggregate<'_> {
    fn spelling(&self) -> &'static str {
        if self.union { "union" } else { "struct" }
    }
}

fn named(row: &MemberRow) -> Role {
    Role::Named { offset: row.offset, spelling: row.spelling.clone() }
}

/// `true` for a structure that is one storage unit of bit-fields and nothing else.
fn is_one_unit(aggregate: &Aggregate<'_>) -> bool {
    !aggregate.union
        && aggregate.children.iter().all(|node| {
            matches!(node, Node::Leaf(_, row)
                if row.bits.is_some() && row.offset == aggregate.offset && row.size == aggregate.size)
        })
}

fn padding(from: u32, to: u32) -> Option<Member> {
    (from < to).then(|| {
        let size = to - from;
        let rust = RustType { text: format!("Padding<{size}>"), size, align: 1, class: Class::Aggregate };
        Member { name: format!("_padding{from}"), offset: from, rust, role: Role::Filler }
    })
}
