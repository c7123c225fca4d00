//! The tables, as text.

use std::fs;

/// A line of a table.
pub type Line = Vec<String>;

/// The data lines of a table: no remarks (`# …`), no heading (`#word` on the first other line).
pub fn read(name: &str) -> Vec<Line> {
    let path = format!("{}/facts/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("# ")).collect();
    if lines[0].starts_with('#') {
        lines.remove(0);
    }
    lines.into_iter().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// A number, decimal or `0x…`.
pub fn number(text: &str) -> i128 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("`{text}` is not a number"))
}

/// A number that is a size or an offset.
pub fn size(text: &str) -> usize {
    usize::try_from(number(text)).unwrap_or_else(|_| panic!("`{text}` is not a size"))
}
