//! Registry values that AddReg writes.

use super::super::Findings;
use super::super::parse::{Entry, Inf, unsigned};
use super::reach::{Named, Reach, Root, Use};
use std::collections::BTreeMap;

/// Flags of AddReg. Source: article inf-addreg-directive.
mod flag {
    pub const BINARY: u64 = 0x0000_0001;
    pub const APPEND: u64 = 0x0000_0008;
    pub const KEY_ONLY: u64 = 0x0000_0010;
    pub const MULTI_SZ: u64 = 0x0001_0000;
    pub const DWORD: u64 = 0x0001_0001;
    pub const QWORD: u64 = 0x000B_0001;
    /// The bits that say which type a value has.
    pub const TYPE: u64 = 0xFFFF_0001;
}

/// Values that install filters. Source: InfVerif 1329; article inf-addfilter-directive.
const FILTERS: [&str; 2] = ["UpperFilters", "LowerFilters"];

/// A value that a section writes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// What `HKR` is, and whose, in lower case; `None`: the value is below another root.
    key: Option<(Root, String)>,
    /// The root that is written, the key below it, and the value's name, in lower case.
    path: [String; 3],
}

impl Place {
    fn of(inf: &Inf, one: &Named<'_>, entry: &Entry) -> Self {
        let owner = one.owner.map_or_else(String::new, |owner| format!("{}\\{}", owner.name, owner.part));
        let path = [0, 1, 2].map(|index| inf.resolved(entry.value(index)).to_ascii_lowercase());
        let key = (path[0] == "hkr").then(|| (one.root, inf.resolved(&owner).to_ascii_lowercase()));
        Self { key, path }
    }
}

pub(super) fn check(inf: &Inf, reach: &Reach<'_>, found: &mut Findings) {
    let mut known: BTreeMap<Place, (String, &str)> = BTreeMap::new();
    let is_added = |one: &&Named<'_>| one.used == Use::Registry && one.by.key.eq_ignore_ascii_case("AddReg");
    for one in reach.named.iter().filter(is_added) {
        for entry in inf.entries(one.section) {
            value(inf, one.root, entry, found);
            let rest: Vec<_> = entry.values.iter().skip(3).map(|value| inf.resolved(value)).collect();
            let (written, first) =
                known.entry(Place::of(inf, one, entry)).or_insert_with(|| (rest.join(","), one.install));
            // Below HKR of a device each install section has its own: device settings are no state of the machine.
            // Source: InfVerif 1330 to 1333, which recommend just that.
            let is_devices =
                matches!(one.root, Root::Software | Root::Hardware) && entry.value(0).eq_ignore_ascii_case("HKR");
            let other = !is_devices && !first.eq_ignore_ascii_case(one.install) && *written != rest.join(",");
            let what = || format!("{} is '{written}' by [{first}]; write the same value in both", entry.value(2));
            let rule = if one.root == Root::Service { "VERIF-1332" } else { "VERIF-1331" };
            found.unless(!other, rule, entry.line, what);
        }
    }
}

/// One line of a section.
fn value(inf: &Inf, root: Root, entry: &Entry, found: &mut Findings) {
    let (at, key, name) = (entry.value(0).to_ascii_uppercase(), inf.resolved(entry.value(1)), entry.value(2));
    let line = entry.line;
    if !["HKR", "HKLM", "HKCR", "HKCU", "HKU"].contains(&at.as_str()) {
        found.add("VERIF-1224", line, format!("'{at}' is no registry root; write HKR"));
        return;
    }
    let flags = if entry.value(3).is_empty() { Some(0) } else { inf.number(entry.value(3)) }.unwrap_or_default();
    if at != "HKR" {
        let key_only = flags & flag::KEY_ONLY != 0 || (name.is_empty() && entry.values.len() <= 3);
        let rule = if key_only { "VERIF-1320" } else { "VERIF-1321" };
        found.add(rule, line, format!("{at}\\{key} is not below HKR; write HKR, or remove the line"));
    } else if root == Root::Service {
        let below = key.split('\\').next().is_some_and(|first| first.eq_ignore_ascii_case("Parameters"));
        let what = || format!("{name} of a service is below '{key}'; write Parameters");
        found.unless(below, "VERIF-1323", line, what);
    }
    let filter = FILTERS.iter().any(|it| it.eq_ignore_ascii_case(name)) && root == Root::Hardware;
    let what = || format!("{name} installs filters; write AddFilter in a section .Filters");
    found.unless(!filter, "VERIF-1329", line, what);
    let of_type = flags & flag::TYPE;
    if flags & flag::APPEND != 0 {
        let multi = of_type == flag::MULTI_SZ;
        found.unless(multi, "VERIF-1265", line, || format!("{name} is appended to, and no REG_MULTI_SZ; remove 0x8"));
        found.unless(!multi, "VERIF-1305", line, || format!("{name} is appended to; write a value of its own"));
    }
    data(inf, of_type, entry, found);
}

/// The data behind the flags, by their type.
fn data(inf: &Inf, of_type: u64, entry: &Entry, found: &mut Findings) {
    let data: Vec<_> = entry.values.iter().skip(4).map(|value| inf.resolved(value)).collect();
    let is_byte = |text: &String| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        unsigned(digits).is_some_and(|digits| digits.len() <= 2 && u8::from_str_radix(digits, 16).is_ok())
    };
    let name = entry.value(2);
    match of_type {
        flag::BINARY if !data.is_empty() => {
            let right = data.iter().all(is_byte);
            let what = || format!("{name} has '{}'; write bytes from 00 to FF", data.join(","));
            found.unless(right, "VERIF-1267", entry.line, what);
        }
        flag::DWORD | flag::QWORD => {
            let bits = if of_type == flag::DWORD { 32 } else { 64 };
            let number = data.first().filter(|_| data.len() == 1).and_then(|text| inf.number(text));
            let fits = number.is_some_and(|number| bits == 64 || u32::try_from(number).is_ok());
            let as_bytes = data.len() == bits / 8 && data.iter().all(is_byte) && bits == 32;
            let what = || format!("{name} has '{}'; write one number of {bits} bits", data.join(","));
            found.unless(fits || as_bytes || data.is_empty(), "VERIF-1268", entry.line, what);
        }
        _ => (),
    }
}
