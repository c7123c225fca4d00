//! Lines of comments and documents end at column 120. rustfmt sees to code; tables, code blocks and what tools have
//! generated are as wide as they are.

use std::path::{Path, PathBuf};

const COLUMNS: usize = 120;

/// Sources and documents below `folder`, without what is built, generated or hidden.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && !["target", "out", "generated"].contains(&name) {
                files(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
            found.push(path);
        }
    }
}

/// Returns whether a line of a comment or document may be longer: a table's, or one word that cannot be broken.
fn may_be_long(text: &str) -> bool {
    text.starts_with('|') || !text.contains(' ')
}

fn long_lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let is_document = path.extension().is_some_and(|extension| extension == "md");
    let mut in_block = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        in_block ^= is_document && trimmed.starts_with("```");
        let prose = match is_document {
            true => (!in_block && !line.starts_with("    ")).then_some(trimmed),
            false => trimmed.strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']).trim_start()),
        };
        if line.chars().count() > COLUMNS && prose.is_some_and(|prose| !may_be_long(prose)) {
            found.push(format!("{}:{}", path.display(), at + 1));
        }
    }
    found
}

#[test]
fn comments_and_documents_end_at_column_120() {
    let mut all = Vec::new();
    files(Path::new(env!("CARGO_MANIFEST_DIR")), &mut all);
    assert!(all.len() > 100, "{} files", all.len());
    let long: Vec<_> = all.iter().flat_map(|path| long_lines(path)).collect();
    assert!(long.is_empty(), "longer than {COLUMNS} columns:\n{}", long.join("\n"));
}
