//! The members of a record as the tree that the dotted paths of the table describe.

use crate::facts::MemberKind;
use crate::facts::MemberRow;
use crate::facts::Record;
use crate::tsv::Error;

/// A structure or union: the record itself or one declared inside it.
#[derive(Debug)]
pub struct Aggregate<'a> {
    /// Last segment of its path: a member name, or `u0`, `s1`, … of an anonymous one. Empty for the record.
    pub name: &'a str,
    /// Whether it has no member name.
    pub anonymous: bool,
    /// `true` for a union.
    pub union: bool,
    /// Offset in the record.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Its line in the table; none for the record.
    pub row: Option<&'a MemberRow>,
    /// Its members in the order of the table.
    pub children: Vec<Node<'a>>,
}

/// A member.
#[derive(Debug)]
pub enum Node<'a> {
    /// One with a type of its own, or a bit-field.
    Leaf(&'a str, &'a MemberRow),
    /// One declared in place.
    Aggregate(Aggregate<'a>),
}

/// Builds the tree of `record`.
pub fn build(record: &Record) -> Result<Aggregate<'_>, Error> {
    let mut root = Aggregate {
        name: "",
        anonymous: false,
        union: record.union,
        offset: 0,
        size: record.size,
        row: None,
        children: Vec::new(),
    };
    for row in &record.members {
        insert(&mut root, &row.path, row).map_err(|error| error.at(&row.place))?;
    }
    Ok(root)
}

fn insert<'a>(parent: &mut Aggregate<'a>, path: &'a str, row: &'a MemberRow) -> Result<(), Error> {
    let (segment, rest) = match path.split_once('.') {
        Some((segment, rest)) => (segment, Some(rest)),
        None => (path, None),
    };
    let anonymous = segment.starts_with('{');
    let name = segment.trim_matches(['{', '}']);
    if let Some(rest) = rest {
        let child = parent.children.iter_mut().find_map(|node| match node {
            Node::Aggregate(child) if child.name == name && child.anonymous == anonymous => Some(child),
            _ => None,
        });
        return insert(child.ok_or_else(|| Error::new("member of an aggregate that has no line"))?, rest, row);
    }
    let union = match row.kind {
        MemberKind::Typed(_) if anonymous => return Err(Error::new("a typed member without a name")),
        MemberKind::Typed(_) => {
            parent.children.push(Node::Leaf(name, row));
            return Ok(());
        }
        MemberKind::Struct => false,
        MemberKind::Union => true,
    };
    parent.children.push(Node::Aggregate(Aggregate {
        name,
        anonymous,
        union,
        offset: row.offset,
        size: row.size,
        row: Some(row),
        children: Vec::new(),
    }));
    Ok(())
}
