//! Natvis files: which type looks how, and the expressions in them, as far as ours use the language.
//!
//! Source: "Create custom views of C++ objects in the debugger using the Natvis framework" (Visual Studio).

use crate::types::{Symbols, Type};
use roxmltree::{Document, Node};

/// Reads memory: `None` where there is none.
pub type Read<'a> = &'a dyn Fn(u64, usize) -> Option<Vec<u8>>;

/// A value: a place with a type, or a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    pub of: Type,
    /// Where it is. `None`: it is a number, or nothing is read.
    at: Option<u64>,
    number: Option<u64>,
}

/// The visualizers of a file, over the types of a symbol file.
pub struct Natvis<'a> {
    pub symbols: &'a Symbols,
    document: &'a Document<'a>,
    /// Where memory comes from; without, types alone are followed.
    pub read: Option<Read<'a>>,
}

/// Returns whether a type's name is meant by a pattern, in which `*` stands for any text. (The symbol file has a space
/// between two angle brackets that end.)
fn is_meant(pattern: &str, name: &str) -> bool {
    let name = name.replace("> >", ">>").replace("> >", ">>");
    let (first, rest) = pattern.split_once('*').unwrap_or((pattern, ""));
    let Some(behind) = name.strip_prefix(first) else { return false };
    match rest.rsplit_once('*') {
        Some((_, last)) => behind.ends_with(last),
        None if pattern.contains('*') => behind.ends_with(rest),
        None => behind.is_empty(),
    }
}

impl<'a> Natvis<'a> {
    pub fn new(symbols: &'a Symbols, document: &'a Document<'a>) -> Self {
        Self { symbols, document, read: None }
    }

    /// The visualizers: pattern of a type's name, and element.
    fn types(&self) -> impl Iterator<Item = (&'a str, Node<'a, 'a>)> {
        let elements = self.document.descendants().filter(|node| node.has_tag_name("Type"));
        elements.map(|node| (node.attribute("Name").unwrap_or_default(), node))
    }

    /// Follows every expression of every visualizer on every type that it is for. Returns how many, and what is wrong.
    pub fn check(&self) -> (usize, Vec<String>) {
        let (mut count, mut wrong) = (0, Vec::new());
        for (pattern, element) in self.types() {
            let meant: Vec<&String> = self.symbols.records.keys().filter(|name| is_meant(pattern, name)).collect();
            if meant.is_empty() {
                wrong.push(format!("{pattern}: the symbol file has no such type"));
            }
            for name in meant {
                let this = Value { of: Type::Record(name.clone()), at: None, number: None };
                for expression in expressions(element) {
                    count += 1;
                    if let Err(why) = self.evaluate(&expression, &this) {
                        wrong.push(format!("{name}: {expression}: {why}"));
                    }
                }
            }
        }
        (count, wrong)
    }

    /// A variable, at its place in an image that is loaded at `base`.
    pub fn variable(&self, name: &str, base: u64) -> Option<Value> {
        let (rva, of) = self.symbols.variables.get(name)?.clone();
        Some(Value { of, at: Some(base + u64::from(rva)), number: None })
    }

    /// What a value looks like in one line.
    pub fn show(&self, value: &Value) -> Result<String, String> {
        if let Type::Record(name) = &value.of
            && let Some((_, element)) = self.types().find(|(pattern, _)| is_meant(pattern, name))
        {
            for text in element.children().filter(|node| node.has_tag_name("DisplayString")) {
                let condition = text.attribute("Condition");
                if condition.map_or(Ok(1), |condition| self.number(&self.evaluate(condition, value)?))? != 0 {
                    return self.fill(text.text().unwrap_or_default(), value);
                }
            }
        }
        match &value.of {
            Type::Record(name) => Ok(format!("a {name}")),
            _ => self.number(value).map(|number| number.to_string()),
        }
    }

    /// The item of a value with this name.
    pub fn item(&self, value: &Value, name: &str) -> Result<Value, String> {
        let Type::Record(record) = &value.of else { return Err("no record".into()) };
        let element = self.types().find(|(pattern, _)| is_meant(pattern, record)).ok_or("no visualizer")?.1;
        for item in element.descendants().filter(|node| node.attribute("Name") == Some(name)) {
            let holds = match item.attribute("Condition") {
                Some(condition) => self.number(&self.evaluate(condition, value)?)? != 0,
                None => true,
            };
            if holds {
                return self.evaluate(without_format(item.text().unwrap_or_default()), value);
            }
        }
        Err(format!("no item {name} is shown"))
    }

    fn fill(&self, text: &str, value: &Value) -> Result<String, String> {
        let mut shown = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            shown.push_str(&rest[..at]);
            let end = at + rest[at..].find('}').ok_or("no }")?;
            let expression = &rest[at + 1..end];
            let part = self.evaluate(without_format(expression), value)?;
            if expression.ends_with(",x") {
                shown.push_str(&format!("{:#x}", self.number(&part)?));
            } else {
                shown.push_str(&self.show(&part)?);
            }
            rest = &rest[end + 1..];
        }
        shown.push_str(rest);
        Ok(shown)
    }

    /// The values of a list that a value is: of an `IndexListItems` or `ArrayItems` that is shown.
    pub fn list(&self, value: &Value) -> Result<Vec<Value>, String> {
        let Type::Record(record) = &value.of else { return Err("no record".into()) };
        let element = self.types().find(|(pattern, _)| is_meant(pattern, record)).ok_or("no visualizer")?.1;
        for list in element.descendants() {
            let part = |name| list.children().find(|node| node.has_tag_name(name)).and_then(|node| node.text());
            let Some(size) = part("Size") else { continue };
            let condition = list.attribute("Condition");
            if condition.map_or(Ok(1), |condition| self.number(&self.evaluate(condition, value)?))? == 0 {
                continue;
            }
            let size = self.number(&self.evaluate(size, value)?)?;
            return match (part("ValueNode"), part("ValuePointer")) {
                (Some(node), _) => (0..size).map(|index| self.evaluate_at(node, value, index)).collect(),
                (_, Some(pointer)) => {
                    let of = format!("({pointer})[$i]");
                    (0..size).map(|index| self.evaluate_at(&of, value, index)).collect()
                }
                _ => Err("a list without values".into()),
            };
        }
        Err("no list is shown".into())
    }

    /// An expression inside of `this`.
    pub fn evaluate(&self, expression: &str, this: &Value) -> Result<Value, String> {
        self.evaluate_at(expression, this, 0)
    }

    /// An expression inside of `this`, in which `$i` is `index`.
    fn evaluate_at(&self, expression: &str, this: &Value, index: u64) -> Result<Value, String> {
        let mut parser = Parser { natvis: self, this, index, rest: without_format(expression).trim() };
        let value = parser.binary(0)?;
        if parser.rest.trim().is_empty() { Ok(value) } else { Err(format!("{:?} is not understood", parser.rest)) }
    }

    /// A value as a number.
    pub fn number(&self, value: &Value) -> Result<u64, String> {
        if let Some(number) = value.number {
            return Ok(number);
        }
        let Some(read) = self.read else { return Ok(1) };
        let bytes = match value.of {
            Type::Number(bytes) => bytes,
            Type::Pointer(_) => 8,
            _ => return Err(format!("{:?} is no number", value.of)),
        };
        let at = value.at.ok_or("it is nowhere")?;
        let mut word = [0; 8];
        // CAST: at most eight.
        word[..bytes as usize].copy_from_slice(&read(at, bytes as usize).ok_or(format!("{at:#x} is not in the dump"))?);
        Ok(u64::from_le_bytes(word))
    }
}

/// `text` without a format specifier.
fn without_format(text: &str) -> &str {
    let text = text.trim();
    ["x", "d", "s", "sb"].iter().find_map(|format| text.strip_suffix(format)?.strip_suffix(',')).unwrap_or(text)
}

/// Every expression under a `Type` element.
fn expressions(element: Node<'_, '_>) -> Vec<String> {
    let mut found = Vec::new();
    for node in element.descendants() {
        found.extend(node.attribute("Condition").map(str::to_owned));
        let text = node.text().unwrap_or_default();
        match node.tag_name().name() {
            "DisplayString" => {
                found.extend(text.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0.to_owned())));
            }
            "Item" | "ExpandedItem" | "Size" | "ValuePointer" | "ValueNode" => found.push(text.to_owned()),
            _ => (),
        }
    }
    found
}

struct Parser<'p, 'a> {
    natvis: &'p Natvis<'a>,
    this: &'p Value,
    /// What `$i` is.
    index: u64,
    rest: &'p str,
}

/// Operators, the weakest first.
const LEVELS: [&[&str]; 5] = [&["||"], &["&&"], &["==", "!="], &["+", "-"], &["/", "%"]];

impl Parser<'_, '_> {
    fn takes(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn binary(&mut self, level: usize) -> Result<Value, String> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.takes(operator)) {
            let right = self.binary(level + 1)?;
            let (a, b) = (self.natvis.number(&left)?, self.natvis.number(&right)?);
            let number = match *operator {
                "||" => u64::from(a != 0 || b != 0),
                "&&" => u64::from(a != 0 && b != 0),
                "==" => u64::from(a == b),
                "!=" => u64::from(a != b),
                "+" => a.wrapping_add(b),
                "-" => a.wrapping_sub(b),
                "/" => a.checked_div(b).ok_or("a division by zero")?,
                _ => a.checked_rem(b).ok_or("a remainder by zero")?,
            };
            left = Value { of: Type::Number(8), at: None, number: Some(number) };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Value, String> {
        if self.takes("*") {
            let pointer = self.unary()?;
            return self.follow(&pointer);
        }
        if self.takes("&") {
            let place = self.unary()?;
            return Ok(Value { of: Type::Pointer(Some(Box::new(place.of))), at: None, number: place.at.or(Some(0)) });
        }
        self.rest = self.rest.trim_start();
        // A cast: what stands in parentheses is a type, which ends in an asterisk.
        if let Some(inside) = self.rest.strip_prefix('(')
            && let Some((name, rest)) = inside.split_once(')')
            && let Some(name) = name.strip_suffix('*').filter(|name| !name.contains('('))
        {
            self.rest = rest;
            let value = self.unary()?;
            let number = self.natvis.read.map(|_| self.natvis.number(&value)).transpose()?;
            let known = self.natvis.symbols.records.contains_key(name);
            if !known && name != "void" {
                return Err(format!("the symbol file has no type {name}"));
            }
            let to = known.then(|| Box::new(Type::Record(name.to_owned())));
            return Ok(Value { of: Type::Pointer(to), at: None, number: number.or(Some(0)) });
        }
        self.postfix()
    }

    fn postfix(&mut self) -> Result<Value, String> {
        let mut value = self.primary()?;
        loop {
            if self.takes("->") {
                let record = self.follow(&value)?;
                value = self.member(&record)?;
            } else if self.takes(".") {
                value = self.member(&value)?;
            } else if self.takes("[") {
                let index = self.binary(0)?;
                let index = self.natvis.number(&index)?;
                if !self.takes("]") {
                    return Err("no ]".into());
                }
                value = self.element(&value, index)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn primary(&mut self) -> Result<Value, String> {
        self.rest = self.rest.trim_start();
        if self.takes("(") {
            let value = self.binary(0)?;
            return if self.takes(")") { Ok(value) } else { Err("no )".into()) };
        }
        if self.takes("$i") {
            return Ok(Value { of: Type::Number(8), at: None, number: Some(self.index) });
        }
        if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
            let number = self.rest[..end].parse().map_err(|_| "no number")?;
            self.rest = &self.rest[end..];
            return Ok(Value { of: Type::Number(8), at: None, number: Some(number) });
        }
        let this = self.this.clone();
        self.member(&this)
    }

    fn member(&mut self, of: &Value) -> Result<Value, String> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let name = &self.rest[..end];
        self.rest = &self.rest[end..];
        let Type::Record(record) = &of.of else { return Err(format!("{name} of {:?}", of.of)) };
        let member = self.natvis.symbols.member(record, name).ok_or(format!("{record} has no {name}"))?;
        Ok(Value { of: member.of.clone(), at: of.at.map(|at| at + member.offset), number: None })
    }

    /// What a pointer points to.
    fn follow(&self, pointer: &Value) -> Result<Value, String> {
        let of = match &pointer.of {
            Type::Pointer(Some(to)) => (**to).clone(),
            other => return Err(format!("{other:?} points to nothing that is known")),
        };
        let at = match self.natvis.read {
            Some(_) => Some(self.natvis.number(pointer)?),
            None => None,
        };
        Ok(Value { of, at, number: None })
    }

    fn element(&self, of: &Value, index: u64) -> Result<Value, String> {
        let (first, bytes) = match &of.of {
            Type::Array(element, bytes) => (Value { of: (**element).clone(), at: of.at, number: None }, Some(*bytes)),
            Type::Pointer(_) => (self.follow(of)?, None),
            other => return Err(format!("{other:?} has no elements")),
        };
        let size = self.natvis.symbols.size(&first.of).ok_or("elements of unknown size")?;
        if self.natvis.read.is_some() && bytes.is_some_and(|bytes| (index + 1) * size > bytes) {
            return Err(format!("element {index} is behind the end"));
        }
        Ok(Value { at: first.at.map(|at| at + index * size), ..first })
    }
}
