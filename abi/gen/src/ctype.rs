//! The C type spellings of the tables, parsed.

use crate::tsv::Error;

/// A C type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CType {
    /// A name: `UINT`, `DXGK_PTE`, `unsigned int`.
    Named(String),
    /// A pointer; `constant` says that what it points to is `const`.
    Pointer {
        /// What it points to.
        to: Box<CType>,
        /// Whether that is `const`.
        constant: bool,
    },
    /// An array; several dimensions nest, outermost first.
    Array(Box<CType>, u32),
    /// A pointer to a function, written out in place.
    Function {
        /// What it returns.
        returns: Box<CType>,
        /// Its parameters.
        parameters: Vec<CType>,
    },
}

/// A parameter of a callback.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Its name in the header, or `argN` where the header has none.
    pub name: String,
    /// Its type.
    pub ctype: CType,
}

/// Parses the type of a member. The mark `~` (type approximate) must be gone already.
pub fn parse(text: &str) -> Result<CType, Error> {
    let mut tokens = Tokens::new(text)?;
    let ctype = tokens.ctype()?;
    if tokens.peek() == Some("__attribute__") {
        // The one x64 calling convention, spelt out.
        return Ok(ctype);
    }
    tokens.end()?;
    Ok(ctype)
}

/// Parses a parameter list: `type name; type name`.
pub fn parse_parameters(text: &str) -> Result<Vec<Parameter>, Error> {
    if text == "VOID" {
        return Ok(Vec::new());
    }
    text.split(';')
        .map(|part| {
            let part = part.trim();
            let start = part
                .rfind(|c: char| !c.is_alphanumeric() && c != '_')
                .ok_or_else(|| Error::new(format!("parameter without a name: `{part}`")))?;
            let (ctype, name) = part.split_at(start + 1);
            Ok(Parameter { name: name.to_owned(), ctype: parse(ctype)? })
        })
        .collect()
}

struct Tokens<'a> {
    text: &'a str,
    tokens: Vec<&'a str>,
    next: usize,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Result<Self, Error> {
        let mut tokens = Vec::new();
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if first.is_alphanumeric() || first == '_' {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            } else if "*()[],".contains(first) {
                1
            } else {
                return Err(Error::new(format!("cannot read the C type `{text}`")));
            };
            let (token, after) = rest.split_at(length);
            tokens.push(token);
            rest = after.trim_start();
        }
        Ok(Self { text, tokens, next: 0 })
    }

    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.next).copied()
    }

    fn take(&mut self, wanted: &str) -> bool {
        let found = self.peek() == Some(wanted);
        self.next += usize::from(found);
        found
    }

    fn error(&self) -> Error {
        Error::new(format!("cannot read the C type `{}`", self.text))
    }

    fn end(&self) -> Result<(), Error> {
        if self.next == self.tokens.len() { Ok(()) } else { Err(self.error()) }
    }

    fn ctype(&mut self) -> Result<CType, Error> {
        let mut constant = self.take("const");
        let mut base = self.peek().ok_or_else(|| self.error())?.to_owned();
        self.next += 1;
        if base == "unsigned" {
            base = format!("unsigned {}", self.peek().ok_or_else(|| self.error())?);
            self.next += 1;
        }
        constant |= self.take("const");
        let mut ctype = CType::Named(base);
        while self.take("*") {
            ctype = CType::Pointer { to: Box::new(ctype), constant };
            constant = self.take("const");
        }
        if self.peek() == Some("(") {
            return self.function(ctype);
        }
        let mut dimensions = Vec::new();
        while self.take("[") {
            let count = self.peek().and_then(|token| token.parse().ok()).ok_or_else(|| self.error())?;
            self.next += 1;
            if !self.take("]") {
                return Err(self.error());
            }
            dimensions.push(count);
        }
        for count in dimensions.into_iter().rev() {
            ctype = CType::Array(Box::new(ctype), count);
        }
        Ok(ctype)
    }

    /// `(*)(parameters)` after a return type.
    fn function(&mut self, returns: CType) -> Result<CType, Error> {
        for token in ["(", "*", ")", "("] {
            if !self.take(token) {
                return Err(self.error());
            }
        }
        let mut parameters = Vec::new();
        while !self.take(")") {
            parameters.push(self.ctype()?);
            self.take(",");
        }
        Ok(CType::Function { returns: Box::new(returns), parameters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> CType {
        CType::Named(name.to_owned())
    }

    fn pointer(to: CType, constant: bool) -> CType {
        CType::Pointer { to: Box::new(to), constant }
    }

    #[test]
    fn const_belongs_to_what_is_pointed_to() {
        assert_eq!(parse("const UINT *").unwrap(), pointer(named("UINT"), true));
        assert_eq!(parse("FARPROC const *").unwrap(), pointer(named("FARPROC"), true));
        assert_eq!(parse("UINT *const").unwrap(), pointer(named("UINT"), false));
        assert_eq!(parse("const UINT **").unwrap(), pointer(pointer(named("UINT"), true), false));
    }

    #[test]
    fn first_dimension_is_the_outer_one() {
        let inner = CType::Array(Box::new(named("float")), 4);
        assert_eq!(parse("float[3][4]").unwrap(), CType::Array(Box::new(inner), 3));
    }

    #[test]
    fn function_pointers_keep_their_parameters() {
        let CType::Function { parameters, .. } = parse("NTSTATUS (*)(HANDLE, const X *, BOOLEAN)").unwrap() else {
            panic!("not a function")
        };
        assert_eq!(parameters, [named("HANDLE"), pointer(named("X"), true), named("BOOLEAN")]);
    }

    #[test]
    fn parameter_names_are_split_off() {
        let parameters = parse_parameters("const HANDLE hAdapter; const X *const pX; X * arg2").unwrap();
        assert_eq!(parameters.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["hAdapter", "pX", "arg2"]);
        assert_eq!(parameters[1].ctype, pointer(named("X"), true));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(parse("UINT {").is_err());
        assert!(parse("UINT[x]").is_err());
    }
}
