//! What an installation reaches: the sections that an INF's models lead to, and by which directive.

use super::super::parse::{Entry, Inf, Section};
use std::collections::BTreeMap;

/// What a section is to the directive that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// A list of files.
    Files,
    /// Registry values.
    Registry,
    /// A service.
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
}

/// A file that is copied by its own name.
pub(super) struct Single<'a> {
    /// Its name.
    pub file: &'a str,
    /// The directive's line.
    pub by: &'a Entry,
}

/// An `AddService` line.
pub(super) struct Service<'a> {
    /// The section that has the line.
    pub of: &'a Section,
    /// The line.
    pub by: &'a Entry,
}

/// What is reached.
#[derive(Default)]
pub(super) struct Reach<'a> {
    /// Sections by the directives that name them, in the order in which they are met.
    pub named: Vec<Named<'a>>,
    /// Files that are copied by themselves.
    pub single: Vec<Single<'a>>,
    /// Services.
    pub services: Vec<Service<'a>>,
    /// Lines of install sections and of what hangs on them.
    pub lines: Vec<&'a Entry>,
    /// Install sections that there are, with their decorations.
    pub installs: Vec<&'a Section>,
    /// Names of all sections that something uses, in lower case.
    used: BTreeMap<String, ()>,
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
const ROOTS: [&str; 9] = [
    "version",
    "manufacturer",
    "controlflags",
    "destinationdirs",
    "sourcedisksnames",
    "sourcedisksfiles",
    "strings",
    "classinstall32",
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
            if ROOTS.contains(&base) || is_default || base == "deviceinstall32" {
                reach.used.insert(name.clone(), ());
            }
            if is_default || base == "classinstall32" || installs.iter().any(|install| belongs(&name, install)) {
                reach.used.insert(name.clone(), ());
                let ending = ENDINGS.iter().find(|ending| name.ends_with(*ending)).copied().unwrap_or_default();
                if ending.is_empty() {
                    reach.installs.push(section);
                }
                let install = section.name.get(..name.len() - ending.len()).unwrap_or(&section.name);
                reach.section(inf, section, ending, install, 0);
            }
        }
        reach
    }

    /// Whether something uses a section of this name.
    pub fn is_used(&self, name: &str) -> bool {
        self.used.contains_key(&name.to_ascii_lowercase())
    }

    /// Walks one section of an installation.
    fn section(&mut self, inf: &'a Inf, section: &'a Section, ending: &str, install: &'a str, depth: usize) {
        let root = match ending {
            "" => Root::Software,
            ".hw" => Root::Hardware,
            ".services" => Root::Service,
            _ => Root::Other,
        };
        for entry in &section.entries {
            self.lines.push(entry);
            let key = entry.key.to_ascii_lowercase();
            let at = |index: usize| entry.values.get(index).map(String::as_str).filter(|name| !name.is_empty());
            match key.as_str() {
                "copyfiles" => {
                    for value in entry.values.iter().filter(|value| !value.is_empty()) {
                        match value.strip_prefix('@') {
                            Some(file) => self.single.push(Single { file, by: entry }),
                            None => self.name(inf, value, Use::Files, root, entry, install, depth),
                        }
                    }
                }
                "delfiles" | "renfiles" => {
                    for value in entry.values.iter().filter(|value| !value.is_empty()) {
                        self.name(inf, value, Use::Files, root, entry, install, depth);
                    }
                }
                "addreg" | "delreg" | "bitreg" => {
                    for value in entry.values.iter().filter(|value| !value.is_empty()) {
                        self.name(inf, value, Use::Registry, root, entry, install, depth);
                    }
                }
                "logconfig" | "profileitems" | "registerdlls" | "unregisterdlls" | "updateinis" | "updateinifields"
                | "ini2reg" | "addproperty" | "delproperty" | "security" => {
                    for value in entry.values.iter().filter(|value| !value.is_empty()) {
                        self.name(inf, value, Use::Other, root, entry, install, depth);
                    }
                }
                "needs" => {
                    for value in entry.values.iter().filter(|value| !value.is_empty()) {
                        self.used.insert(value.to_ascii_lowercase(), ());
                        let needed = inf.sections.iter().find(|one| one.name.eq_ignore_ascii_case(value));
                        if let Some(needed) = needed.filter(|_| depth < 8) {
                            self.section(inf, needed, ending, install, depth + 1);
                        }
                    }
                }
                "addservice" => {
                    self.services.push(Service { of: section, by: entry });
                    if let Some(name) = at(2) {
                        self.name(inf, name, Use::Service, Root::Service, entry, install, depth);
                    }
                    if let Some(name) = at(3) {
                        self.name(inf, name, Use::Other, Root::Other, entry, install, depth);
                    }
                }
                "addinterface" | "addfilter" | "addcomponent" | "addsoftware" => {
                    if let Some(name) = at(2) {
                        self.name(inf, name, Use::Other, Root::Other, entry, install, depth);
                    }
                }
                "addeventprovider" | "addtrigger" | "addchannel" => {
                    if let Some(name) = at(1) {
                        self.name(inf, name, Use::Other, Root::Other, entry, install, depth);
                    }
                }
                _ => (),
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a directive says of a section, and where it stands")]
    fn name(
        &mut self,
        inf: &'a Inf,
        name: &'a str,
        used: Use,
        root: Root,
        by: &'a Entry,
        install: &'a str,
        depth: usize,
    ) {
        self.named.push(Named { section: name, used, root, by, install });
        let is_new = self.used.insert(name.to_ascii_lowercase(), ()).is_none();
        self.used.insert(format!("{}.security", name.to_ascii_lowercase()), ());
        let holds_directives = matches!(used, Use::Service | Use::Other);
        let found = inf.sections.iter().find(|one| one.name.eq_ignore_ascii_case(name));
        if let Some(section) = found.filter(|_| is_new && holds_directives && depth < 8) {
            let ending = if used == Use::Service { ".services" } else { ".other" };
            self.section(inf, section, ending, install, depth + 1);
        }
    }
}

/// Whether the section `name` is `install`, decorated or not, or one of its parts; both in lower case.
fn belongs(name: &str, install: &str) -> bool {
    let Some(rest) = name.strip_prefix(install) else { return false };
    let rest = ENDINGS.iter().find_map(|ending| rest.strip_suffix(ending)).unwrap_or(rest);
    matches!(rest, "" | ".nt") || rest.strip_prefix(".nt").is_some_and(|rest| !rest.contains('.'))
}
