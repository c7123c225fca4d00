//! Reading of tab-separated tables.

use std::fmt;
use std::fs;
use std::path::Path;

/// Why generation stopped: a fact that contradicts another, or a file that cannot be read.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// An error with the given text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The same error, said to have happened at `place`.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Self(format!("{place}: {}", self.0))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// One line of a table, with its line number for messages.
#[derive(Debug, Clone)]
pub struct Row {
    /// File name and line, as in `layout.tsv:12`.
    pub place: String,
    /// The cells. Empty and `-` cells are kept as they are; see [`Row::optional`].
    pub cells: Vec<String>,
}

impl Row {
    /// The text of cell `index`.
    pub fn text(&self, index: usize) -> &str {
        &self.cells[index]
    }

    /// The text of cell `index`, or nothing where the table says `-`.
    pub fn optional(&self, index: usize) -> Option<&str> {
        let text = self.text(index).trim();
        (!text.is_empty() && text != "-").then_some(text)
    }

    /// The number in cell `index`: decimal, or hexadecimal after `0x`.
    pub fn number(&self, index: usize) -> Result<i128, Error> {
        let text = self.text(index);
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => i128::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed.map_err(|_| Error::new(format!("`{text}` is not a number")).at(&self.place))
    }

    /// The number in cell `index` as a size or an offset.
    pub fn size(&self, index: usize) -> Result<u32, Error> {
        u32::try_from(self.number(index)?).map_err(|_| Error::new("number out of range").at(&self.place))
    }
}

/// Reads a table whose rows all have `columns` cells.
///
/// Lines that begin with `# ` are remarks. The first other line that begins with `#` is the column heading; later
/// ones are data (the enum table has rows for the macro group `#define`).
pub fn read(path: &Path, columns: usize) -> Result<Vec<Row>, Error> {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let text = fs::read_to_string(path).map_err(|error| Error::new(error.to_string()).at(path.display()))?;
    let mut rows = Vec::new();
    let mut heading_seen = false;
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with("# ") {
            continue;
        }
        if line.starts_with('#') && !heading_seen && rows.is_empty() {
            heading_seen = true;
            continue;
        }
        let place = format!("{file}:{}", index + 1);
        let cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
        if cells.len() != columns {
            return Err(Error::new(format!("{} cells instead of {columns}", cells.len())).at(place));
        }
        rows.push(Row { place, cells });
    }
    Ok(rows)
}
