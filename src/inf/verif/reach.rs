//! What an installation reaches: the sections that an INF's models lead to, and by which directive.

use super::super::parse::{Entry, Inf, Section};
use std::collections::BTreeSet;

/// What a section is to the directive that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// Its lines are files to be copied, deleted or renamed.
    Files,
    /// Its lines are registry values.
    Registry,
    /// It describes a service.
    Service,
    /// Whatever else a directive names.
    Other,
}

/// Where `HKR` of a list of registry values is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Root {
    /// The software key.
    Software,
    /// The hardware key.
    Hardware,
    /// A service's own key.
    Service,
    /// That of an interface, a filter, a component, or an event log.
    Other,
}

/// A directive that names a section.
pub(super) struct Named<'a> {
    /// The section's name.
    pub section: &'a str,
    /// What it is used as.
    pub used: Use,
    /// The root of its registry values.
    pub root: Root,
    /// The directive's line.
    pub by: &'a Entry,
    /// The install section that it belongs to; empty outside of any.
    pub install: &'a str,
    /// Whose key `root` is: a service, an event log, an interface. `None`: the device's.
    pub owner: Option<Owner<'a>>,
}

/// What has a registry key of its own, by the directive that adds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner<'a> {
    /// Its name: of a service, of a source of events, the GUID of an interface.
    pub name: &'a str,
    /// What stands beside the name: the event log, an interface's reference string.
    pub part: &'a str,
}

/// A file that is copied by its own name.
pub(super) struct Single<'a> {
    /// The file's name, without the mark `@`.
    pub file: &'a str,
    /// The directive's line.
    pub by: &'a Entry,
}

/// An `AddService` line.
pub(super) struct Service<'a> {
    /// The section that has the line.
    pub of: &'a Section,
    /// The line itself: name, flags, section, section of the event log.
    pub by: &'a Entry,
}

/// What is reached.
#[derive(Default)]
pub(super) struct Reach<'a> {
    /// Sections by the directives that name them, in the order in which they are met.
    pub named: Vec<Named<'a>>,
    /// Files that are copied by themselves.
    pub single: Vec<Single<'a>>,
    /// Lines that add services, in the order in which they are met.
    pub services: Vec<Service<'a>>,
    /// Lines of install sections and of what hangs on them.
    pub lines: Vec<&'a Entry>,
    /// Install sections that there are, with their decorations.
    pub installs: Vec<&'a Section>,
    /// Names of all sections that something uses, in lower case.
    used: BTreeSet<String>,
}

/// Endings of the sections that belong to an install section.
pub(super) const ENDINGS: [&str; 12] = [
    ".hw",
    ".services",
    ".coinstallers",
    ".interfaces",
    ".events",
    ".components",
    ".software",
    ".wmi",
    ".filters",
    ".logconfigoverride",
    ".factdef",
    ".security",
];

/// Sections that every INF may have, which no directive names.
const ROOTS: [&str; 10] = [
    "version",
    "manufacturer",
    "controlflags",
    "destinationdirs",
    "sourcedisksnames",
    "sourcedisksfiles",
    "strings",
    "classinstall32",
    "deviceinstall32",
    "interfaceinstall32",
];

impl<'a> Reach<'a> {
    /// What `inf` reaches from the install sections that its models name.
    pub fn of(inf: &'a Inf, installs: &[String]) -> Self {
        let mut reach = Self::default();
        for section in &inf.sections {
            let name = section.name.to_ascii_lowercase();
            let is_default = name.starts_with("defaultinstall") || name.starts_with("defaultuninstall");
            let base = name.split('.').next().unwrap_or_default();
            let installs =
                is_default || base == "classinstall32" || installs.iter().any(|install| belongs(&name, install));
            if installs || ROOTS.contains(&base) {
                reach.used.insert(name.clone());
            }
            if installs {
                let ending = ENDINGS.iter().find(|ending| name.ends_with(*ending)).copied().unwrap_or_default();
                if ending.is_empty() {
                    reach.installs.push(section);
                }
                let install = section.name.get(..name.len() - ending.len()).unwrap_or(&section.name);
                reach.section(section, ending, At { inf, install, owner: None, depth: 0 });
            }
        }
        reach
    }

    /// Whether something uses a section of this name.
    pub fn is_used(&self, name: &str) -> bool {
        self.used.contains(&name.to_ascii_lowercase())
    }

    /// Walks one section of an installation.
    fn section(&mut self, section: &'a Section, ending: &str, at: At<'a>) {
        let root = match ending {
            "" => Root::Software,
            ".hw" => Root::Hardware,
            ".services" => Root::Service,
            _ => Root::Other,
        };
        for entry in &section.entries {
            self.lines.push(entry);
            let mut values = entry.values.iter().filter(|value| !value.is_empty());
            let one = |index: usize| entry.values.get(index).filter(|name| !name.is_empty());
            match entry.key.to_ascii_lowercase().as_str() {
                "copyfiles" => values.for_each(|value| match value.strip_prefix('@') {
                    Some(file) => self.single.push(Single { file, by: entry }),
                    None => self.name(value, Use::Files, root, entry, at),
                }),
                "delfiles" | "renfiles" => values.for_each(|value| self.name(value, Use::Files, root, entry, at)),
                "addreg" | "delreg" | "bitreg" => {
                    values.for_each(|value| self.name(value, Use::Registry, root, entry, at));
                }
                "logconfig" | "profileitems" | "registerdlls" | "unregisterdlls" | "updateinis" | "updateinifields"
                | "ini2reg" | "addproperty" | "delproperty" | "security" => {
                    values.for_each(|value| self.name(value, Use::Other, root, entry, at));
                }
                "needs" => values.for_each(|value| {
                    self.used.insert(value.to_ascii_lowercase());
                    if let Some((needed, at)) = at.below(value) {
                        self.section(needed, ending, at);
                    }
                }),
                "addservice" => {
                    self.services.push(Service { of: section, by: entry });
                    let service = at.of(entry.value(0), "");
                    one(2).into_iter().for_each(|name| self.name(name, Use::Service, Root::Service, entry, service));
                    // Its entries in the log have the service's name where no other is given.
                    let log = at.of(one(5).map_or(entry.value(0), String::as_str), entry.value(4));
                    one(3).into_iter().for_each(|name| self.name(name, Use::Other, Root::Other, entry, log));
                }
                "addinterface" | "addfilter" | "addcomponent" | "addsoftware" => {
                    let reference = if entry.key.eq_ignore_ascii_case("AddInterface") { entry.value(1) } else { "" };
                    let at = at.of(entry.value(0), reference);
                    one(2).into_iter().for_each(|name| self.name(name, Use::Other, Root::Other, entry, at));
                }
                "addeventprovider" | "addtrigger" | "addchannel" => {
                    values.nth(1).into_iter().for_each(|name| self.name(name, Use::Other, Root::Other, entry, at));
                }
                _ => (),
            }
        }
    }

    /// A directive names a section.
    fn name(&mut self, section: &'a str, used: Use, root: Root, by: &'a Entry, at: At<'a>) {
        self.named.push(Named { section, used, root, by, install: at.install, owner: at.owner });
        let name = section.to_ascii_lowercase();
        self.used.insert(format!("{name}.security"));
        let is_new = self.used.insert(name);
        let ending = match used {
            Use::Service => ".services",
            Use::Other => ".other",
            Use::Files | Use::Registry => return,
        };
        if let Some((found, at)) = at.below(section).filter(|_| is_new) {
            self.section(found, ending, at);
        }
    }
}

/// Where a walk is.
#[derive(Clone, Copy)]
struct At<'a> {
    inf: &'a Inf,
    /// The install section that the walk began at.
    install: &'a str,
    /// What the walk came to that has a key of its own.
    owner: Option<Owner<'a>>,
    /// How many sections name each other on the way here.
    depth: usize,
}

impl<'a> At<'a> {
    /// Here, in what has a key of its own.
    fn of(self, name: &'a str, part: &'a str) -> Self {
        Self { owner: Some(Owner { name, part }), ..self }
    }

    /// The section of this name, one step further on. `None`: there is none, or the sections go round in a circle.
    fn below(self, name: &str) -> Option<(&'a Section, Self)> {
        let found = self.inf.sections.iter().find(|section| section.name.eq_ignore_ascii_case(name))?;
        (self.depth < 8).then_some((found, Self { depth: self.depth + 1, ..self }))
    }
}

/// Whether the section `name` is `install`, decorated or not, or one of its parts; both in lower case.
fn belongs(name: &str, install: &str) -> bool {
    let Some(rest) = name.strip_prefix(install) else { return false };
    let rest = ENDINGS.iter().find_map(|ending| rest.strip_suffix(ending)).unwrap_or(rest);
    matches!(rest, "" | ".nt") || rest.strip_prefix(".nt").is_some_and(|rest| !rest.contains('.'))
}
