//! What each function of the driver's table may return: a table made from the DDI pages, `facts/statuses.tsv`.
//!
//! The judges of single functions know more than the page's list (which call may fail at all); this is what they have
//! in common, for functions that no judge of their own looks at, and for documents that say what a driver answers.

use std::sync::OnceLock;

use wddm_abi::NTSTATUS;

static TABLE: &str = include_str!("../../facts/statuses.tsv");

/// How binding the list of statuses on a function's page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// What may be returned, and nothing else.
    Listed,
    /// The same, and the page says that Windows bug-checks at anything else.
    BugCheck,
    /// The page says that the function does not fail.
    Success,
    /// The list is of examples: another status is worth a note and breaks nothing.
    SuchAs,
    /// Success, or whatever says why not.
    Any,
    /// The function returns no status, or the page says nothing.
    Nothing,
}

/// What the page of one function says of level and statuses.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Member of `DRIVER_INITIALIZATION_DATA`.
    pub function: &'static str,
    /// Interrupt request level in the page's words; `-`: none is named.
    pub irql: &'static str,
    /// How binding the list is.
    pub listing: Listing,
    /// Names of the statuses that the page lists; empty for a function that returns none. One that ends with `*` stands
    /// for all whose names begin so.
    pub statuses: Vec<&'static str>,
}

/// How a status that was returned compares with the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is one that the page allows.
    Fits,
    /// It is none of the examples: worth a note, and breaks nothing.
    Note,
    /// The page does not allow it.
    Breaks,
}

/// Every function of the table, in its order.
pub fn all() -> &'static [Entry] {
    static PARSED: OnceLock<Vec<Entry>> = OnceLock::new();
    PARSED.get_or_init(|| TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(parse).collect())
}

/// The entry of a function, by its member of `DRIVER_INITIALIZATION_DATA`; `None`: there is no such member.
pub fn of(function: &str) -> Option<&'static Entry> {
    all().iter().find(|entry| entry.function == function)
}

fn parse(line: &'static str) -> Option<Entry> {
    let mut cells = line.split('\t');
    let (function, irql, listing, statuses) = (cells.next()?, cells.next()?, cells.next()?, cells.next()?);
    let listing = match listing {
        "listed" => Listing::Listed,
        "bugcheck" => Listing::BugCheck,
        "success" => Listing::Success,
        "such-as" => Listing::SuchAs,
        "any" => Listing::Any,
        "none" => Listing::Nothing,
        _ => return None,
    };
    let statuses = statuses.split(' ').filter(|name| *name != "-").collect();
    Some(Entry { function, irql, listing, statuses })
}

impl Entry {
    /// Compares a status that the function returned with its page's list.
    pub fn judge(&self, status: NTSTATUS) -> Answer {
        let lists = |name: &str| {
            let fits = |known: &&str| known.strip_suffix('*').map_or(*known == name, |start| name.starts_with(start));
            self.statuses.iter().any(fits)
        };
        let named = status.name().is_some_and(lists);
        match self.listing {
            Listing::Any | Listing::Nothing => Answer::Fits,
            Listing::Success if status.is_success() => Answer::Fits,
            _ if named => Answer::Fits,
            Listing::SuchAs => Answer::Note,
            Listing::Listed | Listing::BugCheck | Listing::Success => Answer::Breaks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wddm_abi::ntstatus::{STATUS_GRAPHICS_INVALID_VIDPN, STATUS_NOT_SUPPORTED, STATUS_SUCCESS};
    use wddm_abi::slots::DRIVER_INITIALIZATION_DATA_SLOTS;

    #[test]
    fn every_function_of_the_table_is_there_in_order() {
        let members = DRIVER_INITIALIZATION_DATA_SLOTS.iter().map(|slot| slot.member);
        let members: Vec<_> = members.filter(|member| member.starts_with("DxgkDdi")).collect();
        let found: Vec<_> = all().iter().map(|entry| entry.function).collect();
        assert_eq!(found, members);
    }

    #[test]
    fn a_line_with_an_unknown_word_is_none() {
        assert!(parse("DxgkDdiX\tPASSIVE_LEVEL\tlisted\tSTATUS_SUCCESS").is_some());
        assert!(parse("DxgkDdiX\tPASSIVE_LEVEL\tlited\tSTATUS_SUCCESS").is_none());
        assert!(TABLE.lines().all(|line| line.starts_with('#') || parse(line).is_some()));
    }

    #[test]
    fn every_status_is_one_of_windows() {
        for entry in all() {
            for name in entry.statuses.iter().filter(|name| !name.ends_with('*')) {
                assert!(NTSTATUS::from_name(name).is_some(), "{}: {name}", entry.function);
            }
            let closed = matches!(entry.listing, Listing::Listed | Listing::BugCheck | Listing::SuchAs);
            assert!(!closed || entry.statuses.contains(&"STATUS_SUCCESS"), "{}", entry.function);
            assert_eq!(entry.judge(STATUS_SUCCESS), Answer::Fits, "{}", entry.function);
        }
    }

    #[test]
    fn a_list_of_examples_breaks_nothing() {
        let answer = |function| of(function).map(|entry| entry.judge(STATUS_NOT_SUPPORTED));
        assert_eq!(answer("DxgkDdiQueryAdapterInfo"), Some(Answer::Note));
        assert_eq!(answer("DxgkDdiRenderGdi"), Some(Answer::Breaks));
        assert_eq!(answer("DxgkDdiDisconnectDoorbell"), Some(Answer::Breaks));
        assert_eq!(answer("DxgkDdiCreateHwQueue"), Some(Answer::Fits));
    }

    #[test]
    fn a_star_stands_for_every_status_of_a_name_that_begins_so() {
        let entry = of("DxgkDdiControlModeBehavior");
        let answer = |status| entry.map(|entry| entry.judge(status));
        assert_eq!(answer(STATUS_GRAPHICS_INVALID_VIDPN), Some(Answer::Fits));
        assert_eq!(answer(STATUS_NOT_SUPPORTED), Some(Answer::Breaks));
    }
}
