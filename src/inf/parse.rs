//! Sections, entries and values of an INF file.

/// An INF file, taken apart.
pub(super) struct Inf {
    /// The text as it was.
    pub text: String,
    /// Sections in order. A name that comes twice is there twice.
    pub sections: Vec<Section>,
    /// Lines that stand before any section.
    pub stray: Vec<usize>,
    /// Lines that are no INF syntax, and what is wrong with each.
    pub malformed: Vec<(usize, &'static str)>,
}

/// A section of an INF file: its name and its lines.
pub(super) struct Section {
    /// The name between the brackets.
    pub name: String,
    /// Line of the brackets.
    pub line: usize,
    /// What stands in it.
    pub entries: Vec<Entry>,
}

/// `KEY = VALUE, VALUE` or `VALUE, VALUE`.
pub(super) struct Entry {
    /// Line, from 1.
    pub line: usize,
    /// What stands before the `=`; empty without one.
    pub key: String,
    /// What stands behind it, without quotes.
    pub values: Vec<String>,
}

impl Entry {
    /// The value at `index`, as it is written; empty where there is none.
    pub fn value(&self, index: usize) -> &str {
        self.values.get(index).map_or("", String::as_str)
    }

    /// The line without its spacing, with the strings of `inf` put in.
    pub fn text(&self, inf: &Inf) -> String {
        let values: Vec<_> = self.values.iter().map(|value| inf.resolved(value)).collect();
        let values = values.join(", ").replace(", ,", ",,");
        if self.key.is_empty() { values } else { format!("{} = {values}", self.key) }
    }
}

impl Inf {
    /// Reads a file. What is no INF gives a file without sections.
    pub fn read(text: &str) -> Self {
        let (mut sections, mut stray): (Vec<Section>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut malformed = Vec::new();
        for Logical { line, content } in logical(text, &mut malformed) {
            let content = content.trim();
            malformed.extend(mistake(content).map(|mistake| (line, mistake)));
            if let Some(name) = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                sections.push(Section { name: name.trim().to_owned(), line, entries: Vec::new() });
            } else if content.is_empty() {
                continue;
            } else if let Some(section) = sections.last_mut() {
                let (key, values) = split_key(content);
                let values = split_values(values);
                section.entries.push(Entry { line, key: unquoted(key), values });
            } else {
                stray.push(line);
            }
        }
        Self { text: text.to_owned(), sections, stray, malformed }
    }

    /// Entries of the sections of this name, in any case; none where there is no such section.
    pub fn entries(&self, section: &str) -> impl Iterator<Item = &Entry> {
        self.sections
            .iter()
            .filter(move |found| found.name.eq_ignore_ascii_case(section))
            .flat_map(|found| &found.entries)
    }

    /// The entry with this key, in any case.
    pub fn entry(&self, section: &str, key: &str) -> Option<&Entry> {
        self.entries(section).find(|entry| entry.key.eq_ignore_ascii_case(key))
    }

    /// The first value of the entry with this key, with its strings put in, and its line; empty and 0 where there is
    /// none.
    pub fn directive(&self, section: &str, key: &str) -> (String, usize) {
        let found = self.entry(section, key);
        found.map_or((String::new(), 0), |entry| (self.resolved(entry.value(0)), entry.line))
    }

    /// The text with each `%name%` of `[Strings]` put in. Folder numbers such as `%13%` stay, and so does `%%`.
    pub fn resolved(&self, text: &str) -> String {
        let put_in = |piece: Piece<'_>| match piece.token().and_then(|token| self.entry("Strings", token)) {
            Some(entry) => entry.value(0).to_owned(),
            None => piece.0.to_owned(),
        };
        pieces(text).map(put_in).collect()
    }

    /// The number that a value stands for, decimal or hexadecimal.
    pub fn number(&self, value: &str) -> Option<u64> {
        let value = self.resolved(value).to_ascii_lowercase();
        match value.strip_prefix("0x") {
            Some(digits) => unsigned(digits).and_then(|digits| u64::from_str_radix(digits, 16).ok()),
            None => unsigned(&value)?.parse().ok(),
        }
    }
}

/// The digits of a number as an INF has it: without a plus sign, which the language's own readers of numbers take.
pub(super) fn unsigned(text: &str) -> Option<&str> {
    (!text.starts_with('+')).then_some(text)
}

/// A line with what it goes on in.
struct Logical {
    /// Its first line, from 1.
    line: usize,
    /// Its text, without comments.
    content: String,
}

/// The lines of a file, without comments, each with those that it goes on in: a backslash at the end, outside of
/// quotes, says so, and of several there each is left out.
///
/// Chosen: a quotation mark has its other in its own line; behind the backslash comes neither a section, nor an empty
/// line, nor the end; a line that is a comment and nothing else has no relevance there, as it has none elsewhere.
/// Source: article general-syntax-rules-for-inf-files, Line Format, Continuation, and Comments.
fn logical(text: &str, malformed: &mut Vec<(usize, &'static str)>) -> Vec<Logical> {
    let mut all: Vec<Logical> = Vec::new();
    let mut goes_on = None;
    for (line, content) in (1..).zip(text.lines()) {
        let content = match without_comment(content).trim() {
            "" if goes_on.is_some() && !content.trim().is_empty() => continue,
            content => content,
        };
        if !content.matches('"').count().is_multiple_of(2) {
            malformed.push((line, "a quotation mark has no other; write both or none"));
        }
        let begins = content.is_empty() || content.starts_with('[');
        if let Some(before) = goes_on.take_if(|_| begins) {
            malformed.push((before, NOTHING_FOLLOWS));
        }
        let rest = content.trim_end_matches('\\');
        match all.last_mut().filter(|_| goes_on.is_some()) {
            Some(first) => first.content.push_str(rest),
            None => all.push(Logical { line, content: rest.to_owned() }),
        }
        goes_on = (rest.len() < content.len()).then_some(line);
    }
    malformed.extend(goes_on.map(|line| (line, NOTHING_FOLLOWS)));
    all
}

const NOTHING_FOLLOWS: &str = "the line goes on behind its '\\', where nothing follows; remove it";

/// What makes a line, without its comment, no INF syntax.
fn mistake(content: &str) -> Option<&'static str> {
    if content.starts_with('[') != content.ends_with(']') && content.starts_with('[') {
        return Some("the name of a section ends without ']' or is followed by more; write '[NAME]' alone");
    }
    content.starts_with('=').then_some("nothing stands before '='; write a key there, or remove the sign")
}

/// A `%name%`, a `%%`, or what stands between such.
struct Piece<'a>(&'a str);

impl<'a> Piece<'a> {
    /// The name of a string; none for text, for `%%`, and for the number of a folder.
    fn token(&self) -> Option<&'a str> {
        let name = self.0.strip_prefix('%')?.strip_suffix('%')?;
        (!name.is_empty() && name.parse::<u32>().is_err()).then_some(name)
    }
}

/// The pieces of a text. A percent sign without another is text.
///
/// Source: article general-syntax-rules-for-inf-files, Using String Tokens, and Line Format, Continuation, and
/// Comments: a percent sign is escaped by another.
fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let length = match rest.strip_prefix('%').map(|inside| inside.find('%')) {
            Some(Some(end)) => end + 2,
            Some(None) => rest.len(),
            None => rest.find('%').unwrap_or(rest.len()),
        };
        let (piece, behind) = rest.split_at(length);
        rest = behind;
        (!piece.is_empty()).then_some(Piece(piece))
    })
}

/// Names between percent signs, without folder numbers.
pub(super) fn tokens(text: &str) -> Vec<String> {
    pieces(text).filter_map(|piece| piece.token().map(str::to_owned)).collect()
}

/// The line up to a semicolon that stands outside of quotes and of a `%name%`.
fn without_comment(line: &str) -> &str {
    let (mut quoted, mut token_ends) = (false, 0);
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '%' if !quoted && at >= token_ends => {
                token_ends = line[at + 1..].find('%').map_or(at + 1, |end| at + 1 + end + 1);
            }
            ';' if !quoted && at >= token_ends => return &line[..at],
            _ => {}
        }
    }
    line
}

/// Splits at the first equals sign outside of quotes.
fn split_key(line: &str) -> (&str, &str) {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '=' if !quoted => return (line[..at].trim(), line[at + 1..].trim()),
            _ => {}
        }
    }
    ("", line)
}

/// Splits at commas outside of quotes.
fn split_values(text: &str) -> Vec<String> {
    let (mut values, mut from, mut quoted) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => {
                values.push(unquoted(&text[from..at]));
                from = at + 1;
            }
            _ => {}
        }
    }
    values.push(unquoted(&text[from..]));
    values
}

/// The text without the quotation marks around it; two inside of them stand for one.
///
/// Source: article general-syntax-rules-for-inf-files, Line Format, Continuation, and Comments, last point.
fn unquoted(text: &str) -> String {
    let text = text.trim();
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(inside) => inside.replace("\"\"", "\""),
        None => text.to_owned(),
    }
}

/// The date that a text is, as DriverVer has it: `MM/DD/YYYY`, or `MM-DD-YYYY`. Chosen: one separator for both places.
/// Source: article inf-driverver-directive, Entries.
pub(super) fn date(text: &str) -> Option<jiff::civil::Date> {
    let mut parts = text.split(if text.contains('-') { '-' } else { '/' });
    let mut number = |digits| {
        let part = parts.next().filter(|part| part.len() == digits && part.bytes().all(|digit| digit.is_ascii_digit()));
        part.and_then(|part| part.parse::<i16>().ok())
    };
    let (month, day, year) = (number(2)?, number(2)?, number(4)?);
    let date = jiff::civil::Date::new(year, month.try_into().ok()?, day.try_into().ok()?).ok()?;
    parts.next().is_none().then_some(date)
}
