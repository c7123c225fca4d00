//! Comparison of the tables with C headers, by a C compiler that looks at one assertion a line.
//!
//! The compiler may be any that takes gcc's arguments: clang on Windows, which wdk-sys needs anyway; gcc or clang here.
//! Sizes, alignments, offsets and values are compared. Of a bit-field it is only known that there is one of that name:
//! C has no constant expression for its place.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::facts::{Constant, Facts};
use crate::tsv::Error;

/// What the compiler is, and what it is given.
#[derive(Debug, Clone)]
pub struct Question {
    /// The compiler: gcc, clang, or another that takes their arguments.
    pub compiler: String,
    /// Folders of headers, the first one first.
    pub include: Vec<PathBuf>,
    /// Headers in the order in which they are included.
    pub headers: Vec<String>,
    /// Further arguments of the compiler.
    pub arguments: Vec<String>,
}

/// What the headers have that the tables have, and what is otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Records that the headers declare.
    pub records: usize,
    /// Enumerators and macros that the headers declare.
    pub values: usize,
    /// Assertions that held.
    pub held: usize,
    /// What is otherwise, by its record, enumeration or macro: a sentence each.
    pub otherwise: BTreeMap<String, Vec<String>>,
    /// Records that the headers do not declare.
    pub absent: Vec<String>,
}

/// One line of the C file.
struct Check {
    /// Record, or enumerator.
    of: String,
    /// What is otherwise if the line is wrong; `None`: the line says that the name exists.
    wrong: Option<String>,
}

/// The C file, and what each of its lines asks.
struct Asked {
    text: String,
    lines: BTreeMap<usize, Check>,
    next: usize,
}

impl Asked {
    fn line(&mut self, text: &str, check: Option<Check>) {
        self.next += 1;
        self.text.push_str(text);
        self.text.push('\n');
        if let Some(check) = check {
            self.lines.insert(self.next, check);
        }
    }

    /// Says that `condition` holds.
    fn assert(&mut self, of: &str, condition: &str, wrong: String) {
        self.line(
            &format!("_Static_assert({condition}, \"\");"),
            Some(Check { of: of.to_owned(), wrong: Some(wrong) }),
        );
    }

    /// Uses `expression`, whose size is asked for: it exists.
    fn exists(&mut self, of: &str, expression: &str) {
        let text = format!("_Static_assert(sizeof({expression}) > 0, \"\");");
        self.line(&text, Some(Check { of: of.to_owned(), wrong: None }));
    }
}

/// The C name of a member: what is anonymous in the table is so in C.
fn c_path(path: &str) -> String {
    path.split('.').filter(|part| !part.starts_with('{')).collect::<Vec<_>>().join(".")
}

fn begin(headers: &[String]) -> Asked {
    let mut asked = Asked { text: String::new(), lines: BTreeMap::new(), next: 0 };
    asked.line("#include <stddef.h>", None);
    for header in headers {
        asked.line(&format!("#include <{header}>"), None);
    }
    asked
}

/// Whether each record, enumerator and macro exists.
fn ask_for_names(facts: &Facts, headers: &[String]) -> Asked {
    let mut asked = begin(headers);
    for name in facts.records.iter().map(|record| &record.name).chain(constants(facts).map(|known| &known.name)) {
        asked.exists(name, name);
    }
    asked
}

fn constants(facts: &Facts) -> impl Iterator<Item = &Constant> {
    facts.enums.iter().flat_map(|known| &known.values).chain(&facts.macros)
}

/// What the tables say of the names that exist.
fn ask_for_facts(facts: &Facts, headers: &[String], absent: &BTreeSet<String>) -> Asked {
    let mut asked = begin(headers);
    for record in facts.records.iter().filter(|record| !absent.contains(&record.name)) {
        let name = &record.name;
        let (size, align) = (record.size, record.align);
        asked.assert(name, &format!("sizeof({name}) == {size}"), format!("its size is not {size}"));
        asked.assert(name, &format!("_Alignof({name}) == {align}"), format!("its alignment is not {align}"));
        for member in &record.members {
            let path = c_path(&member.path);
            // The path of an anonymous aggregate is that of what is around it.
            if member.path.split('.').next_back().is_none_or(|last| last.starts_with('{')) {
                continue;
            }
            if member.bits.is_some() {
                let condition = format!("sizeof((({name} *)0)->{path} + 0) > 0");
                asked.assert(name, &condition, format!("{path}: there is no such bit-field"));
                continue;
            }
            let (offset, size) = (member.offset, member.size);
            let condition = format!("offsetof({name}, {path}) == {offset}");
            asked.assert(name, &condition, format!("{path} is not at {offset}, or not there"));
            let condition = format!("sizeof((({name} *)0)->{path}) == {size}");
            asked.assert(name, &condition, format!("{path} does not have {size} bytes"));
        }
    }
    for constant in constants(facts).filter(|known| !absent.contains(&known.name)) {
        let (name, value) = (&constant.name, constant.value);
        // C's int, or an unsigned number of 32 bits with the same bits.
        let long = format!("(unsigned long long)({name}) == {}ull", as_unsigned(value));
        let short = format!("(unsigned)({name}) == {}u", as_unsigned(value) & 0xFFFF_FFFF);
        let condition = if value.unsigned_abs() >> 32 == 0 { short } else { long };
        asked.assert(name, &condition, format!("its value is not {value}"));
    }
    asked
}

fn as_unsigned(value: i128) -> u64 {
    // CAST: the bits of a negative number.
    value as u64
}

/// The numbers of the file's lines that the compiler found wrong.
fn wrong_lines(said: &str, file: &str) -> BTreeSet<usize> {
    let number = |line: &str| {
        let rest = line.split_once(file)?.1.strip_prefix([':', '('])?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok().filter(|_| rest.contains("error"))
    };
    said.lines().filter_map(number).collect()
}

/// Asks a compiler what its headers say of the tables in `facts`.
///
/// # Errors
/// The tables cannot be read, the compiler cannot be started, a header is not found, or nothing that the tables have is
/// in the headers.
pub fn verify(facts: &Path, question: &Question) -> Result<Answer, Error> {
    let facts = Facts::read(facts)?;
    // The names first: a compiler takes its time over each line that uses what is not there.
    let names = ask_for_names(&facts, &question.headers);
    let wrong = compile(&names, question)?;
    let absent: BTreeSet<String> =
        wrong.iter().filter_map(|line| names.lines.get(line)).map(|it| it.of.clone()).collect();
    let there: BTreeSet<&String> =
        names.lines.values().map(|it| &it.of).filter(|name| !absent.contains(*name)).collect();
    if there.is_empty() {
        return Err(Error::new("nothing that the tables have is in these headers; --header and --include name others"));
    }
    let asked = ask_for_facts(&facts, &question.headers, &absent);
    let wrong = compile(&asked, question)?;
    let mut otherwise: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for check in wrong.iter().filter_map(|line| asked.lines.get(line)) {
        otherwise.entry(check.of.clone()).or_default().extend(check.wrong.clone());
    }
    let is_record = |name: &str| facts.records.iter().any(|record| record.name == name);
    let records = there.iter().filter(|name| is_record(name)).count();
    Ok(Answer {
        records,
        values: there.len() - records,
        held: asked.lines.len() - wrong.len(),
        otherwise,
        absent: absent.into_iter().filter(|name| is_record(name)).collect(),
    })
}

/// Has the compiler look at a file; returns the numbers of the lines that are wrong.
fn compile(asked: &Asked, question: &Question) -> Result<BTreeSet<usize>, Error> {
    const FILE: &str = "verify_abi.c";
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let compiler = &question.compiler;
    let start =
        |error: std::io::Error| Error::new(format!("{compiler} cannot be started ({error}); --compiler names another"));
    let about = Command::new(compiler).arg("--version").output().map_err(start)?;
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("verify_abi_{}_{number}", std::process::id()));
    let io = |error: std::io::Error| Error::new(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(io)?;
    let file = folder.join(FILE);
    std::fs::write(&file, &asked.text).map_err(io)?;
    let mut command = Command::new(compiler);
    // Of clang for Windows' own ABI the extensions are the default.
    command.args(["-fsyntax-only", "-x", "c", "-std=gnu11", "-w", "-fms-extensions"]);
    if String::from_utf8_lossy(&about.stdout).contains("clang") {
        command.args(["-ferror-limit=0", "-fno-caret-diagnostics", "-fno-spell-checking"]);
    } else {
        command.arg("-fno-diagnostics-show-caret");
    }
    command.args(&question.arguments);
    for headers in &question.include {
        command.arg("-I").arg(headers);
    }
    // Its words are read.
    let output = command.env("LC_ALL", "C").arg(&file).output().map_err(start);
    let _left = std::fs::remove_dir_all(&folder);
    let output = output?;
    let said = format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    let wrong = wrong_lines(&said, FILE);
    let is_error = |line: &&str| line.contains("error");
    // Errors of the headers, of the lines that include them, and of the compiler itself.
    let foreign = |line: &&str| is_error(line) && !line.contains(FILE) || line.contains("fatal error");
    let unasked = wrong.iter().any(|line| !asked.lines.contains_key(line));
    let silent = !output.status.success() && wrong.is_empty();
    let first = said.lines().find(foreign).or_else(|| said.lines().find(is_error).filter(|_| unasked || silent));
    match first {
        Some(line) => Err(Error::new(format!("the headers do not compile: {line}"))),
        None if silent => Err(Error::new("the headers do not compile, and the compiler does not say why")),
        None => Ok(wrong),
    }
}

/// The answer in words. `all`: with the names of what is absent.
pub fn describe(answer: &Answer, all: bool) -> String {
    let mut text = String::new();
    for (name, wrongs) in &answer.otherwise {
        for wrong in wrongs {
            let _ = writeln!(text, "{name}: {wrong}");
        }
    }
    if all {
        for name in &answer.absent {
            let _ = writeln!(text, "{name}: not in these headers");
        }
    }
    let Answer { records, values, held, otherwise, absent } = answer;
    let _ = writeln!(
        text,
        "{records} records and {values} values are in these headers, {} records are not; {held} assertions hold, and {} \
         names are otherwise",
        absent.len(),
        otherwise.len()
    );
    text
}
