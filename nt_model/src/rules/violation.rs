//! What a check found, and who did it.

use std::fmt;

use super::{Rule, Severity};

/// Numbers as a finding tells them: `0x10a, 0x10b`, or `none`.
pub fn hex_list(numbers: impl IntoIterator<Item = impl fmt::LowerHex>) -> String {
    let all: Vec<_> = numbers.into_iter().map(|number| format!("{number:#x}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// What a check found, in numbers and words.
#[derive(Clone, Debug, Default)]
pub struct Details {
    pub(super) text: String,
    pub(super) code: Option<u32>,
    pub(super) param1: Option<u64>,
    pub(super) params: [u64; 3],
}

impl Details {
    /// `text`: what happened, one sentence without a full stop.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Parameters two to four of the bug check.
    #[must_use]
    pub fn params(mut self, params: [u64; 3]) -> Self {
        self.params = params;
        self
    }

    /// Another bug check code than the rule's own.
    #[must_use]
    pub fn code(mut self, code: u32) -> Self {
        self.code = Some(code);
        self
    }

    /// Parameter one, where the rule's own is not precise enough.
    #[must_use]
    pub fn param1(mut self, param1: u64) -> Self {
        self.param1 = Some(param1);
        self
    }
}

impl From<String> for Details {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for Details {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

/// Where the call that broke a rule came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Code of a loaded image: its name and the return address relative to its base (what a disassembler or
    /// `llvm-symbolizer` takes, less the preferred base).
    Image {
        /// File name of the image.
        image: String,
        /// Return address less the image's base.
        rva: u64,
    },
    /// Natively linked code.
    Native {
        /// Source file.
        file: &'static str,
        /// Line in it.
        line: u32,
    },
    /// An address in no image.
    Address(u64),
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image { image, rva } => write!(f, "{image}+{rva:#x}"),
            Self::Native { file, line } => write!(f, "{file}:{line}"),
            Self::Address(address) => write!(f, "{address:#x}"),
        }
    }
}

/// The service call during which a rule was broken.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// Routine or DDI, by Microsoft's name.
    pub routine: &'static str,
    /// Argument names and values.
    pub arguments: Vec<(&'static str, u64)>,
    /// Who called.
    pub caller: Caller,
}

/// What the calling thread was doing.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The service that the driver was in, if any.
    pub call: Option<CallRecord>,
    /// The driver entry points that the thread is in, outermost first: `["DxgkDdiSubmitCommand"]`.
    pub entries: Vec<&'static str>,
    /// Thread number in its machine; 0 for a thread that is in none.
    pub thread: u64,
    /// Thread name.
    pub thread_name: String,
    /// IRQL at the time.
    pub irql: u8,
}

/// A broken rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub rule: &'static Rule,
    /// Bug check code; 0 where Windows has none for this.
    pub code: u32,
    /// Its four parameters.
    pub params: [u64; 4],
    /// What happened.
    pub detail: String,
    /// Who did it.
    pub context: Context,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p1, p2, p3, p4] = self.params;
        match self.code {
            0 if self.rule.severity == Severity::Error => {
                writeln!(f, "*** RULE BROKEN, for which Windows has no bug check")?;
            }
            0 => writeln!(f, "*** {}", self.rule.severity.name().to_uppercase())?,
            code => writeln!(f, "*** STOP: 0x{code:08X} (0x{p1:X}, 0x{p2:X}, 0x{p3:X}, 0x{p4:X})")?,
        }
        writeln!(f, "    rule    {}: {}", self.rule.name, self.rule.title)?;
        writeln!(f, "    found   {}", self.detail)?;
        writeln!(f, "    source  {}", self.rule.source)?;
        if let Some(call) = &self.context.call {
            write!(f, "    call    {}(", call.routine)?;
            for (i, (name, value)) in call.arguments.iter().enumerate() {
                write!(f, "{}{name}={value:#x}", if i == 0 { "" } else { ", " })?;
            }
            writeln!(f, ") from {}", call.caller)?;
        }
        if !self.context.entries.is_empty() {
            writeln!(f, "    in      {}", self.context.entries.join(" > "))?;
        }
        writeln!(f, "    thread  {} {:?}, IRQL {}", self.context.thread, self.context.thread_name, self.context.irql)?;
        write!(f, "    fix     {}", self.rule.fix)
    }
}
