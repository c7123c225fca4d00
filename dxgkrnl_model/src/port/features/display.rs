//! What Windows asks `DxgkDdiQueryInterface` for before `DxgkDdiStartDevice`: interfaces of displays.
//!
//! A driver that has none of them answers each with STATUS_NOT_SUPPORTED. One that has an interface fills it; the model
//! has no displays, so it lets the interface go at once and calls none of its functions.
//!
//! Source: DDI pages DxgkDdiQueryInterface, DXGK_I2C_INTERFACE, DXGK_OPM_INTERFACE and those behind it, for the sizes.
//! Which of them are asked, in which order and when, is not documented: the author of a render-only driver saw I2C,
//! OPM_3, OPM_2, OPM_2_JTP and OPM, before StartDevice. The versions are numbered as the structures came.

use wddm_abi::{
    DXGKDDI_FEATURE_INTERFACE, GUID, GUID_DEVINTERFACE_I2C, GUID_DEVINTERFACE_OPM, GUID_DEVINTERFACE_OPM_2,
    GUID_DEVINTERFACE_OPM_2_JTP, GUID_DEVINTERFACE_OPM_3, Plain, ntstatus,
};

use super::{QUERY_INTERFACE_RULE, Space, query_interface, reference};
use crate::port::miniport::Miniport;

/// An interface of displays.
struct DisplayInterface {
    name: &'static str,
    guid: GUID,
    /// Bytes.
    size: u16,
    version: u16,
}

/// Bytes of the members that each interface begins with, and of a function.
const HEADER: u16 = 32;
const FUNCTION: u16 = 8;

/// An interface of so many functions.
const fn interface(name: &'static str, guid: GUID, functions: u16, version: u16) -> DisplayInterface {
    DisplayInterface { name, guid, size: HEADER + functions * FUNCTION, version }
}

const ALL: [DisplayInterface; 5] = [
    interface("I2C", GUID_DEVINTERFACE_I2C, 2, 1),
    interface("OPM", GUID_DEVINTERFACE_OPM, 9, 1),
    interface("OPM_2_JTP", GUID_DEVINTERFACE_OPM_2_JTP, 11, 2),
    interface("OPM_2", GUID_DEVINTERFACE_OPM_2, 10, 3),
    interface("OPM_3", GUID_DEVINTERFACE_OPM_3, 12, 4),
];

/// Asks for each of these interfaces.
///
/// IRQL: PASSIVE_LEVEL.
pub(crate) fn query(adapter: &Miniport, names: &[String]) {
    let known = |name: &String| ALL.iter().find(|interface| interface.name == *name);
    for wanted in names.iter().filter_map(known) {
        let mut space = Space::new();
        let status = query_interface(adapter, &wanted.guid, &mut space, (wanted.size, wanted.version));
        adapter.note(format!("QueryInterface {}", wanted.name), format!("{status:?}"));
        if status == ntstatus::STATUS_SYSTEM_SHUTDOWN {
            return;
        }
        let refused = status == ntstatus::STATUS_NOT_SUPPORTED && space.is_untouched();
        let filled = if status.is_success() { DXGKDDI_FEATURE_INTERFACE::from_bytes(&space.0) } else { None };
        let is_sound = |header: &DXGKDDI_FEATURE_INTERFACE| {
            (HEADER..=wanted.size).contains(&header.Size) && space.is_untouched_from(wanted.size)
        };
        let sound = refused || filled.as_ref().is_some_and(is_sound);
        adapter.rules().check(&QUERY_INTERFACE_RULE, sound, || {
            format!(
                "{}, before the start: {status:?}, buffer {}",
                wanted.name,
                if space.is_untouched() { "untouched" } else { "written" }
            )
        });
        if let Some(header) = filled.filter(|_| sound) {
            reference(adapter, &header, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;
    use crate::port::transcript::DISPLAY_INTERFACES;

    #[test]
    fn each_interface_of_a_transcript_is_known() {
        assert_eq!(ALL.map(|interface| interface.name), DISPLAY_INTERFACES);
    }
}
