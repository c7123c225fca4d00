//! The lowest rung on which each case can be played, and why.
//!
//! A rung is what the driver and Windows agree on: 0 packets, 1 hardware queues, 2 native fences, 3 doorbells. Rung 0
//! is probably what a real Windows grants first.

/// A rung, why these cases need it, and which they are.
type Need = (u32, &'static str, &'static [&'static str]);

#[rustfmt::skip]
const NEEDS: &[Need] = &[
    (0, "it asks for work, fences and memory alone, which every rung has", &[
        "WS-01", "WS-02", "WS-03", "WS-04", "WS-05", "WS-06", "WS-08", "WS-09", "WS-10", "WS-11", "WS-13",
        "WS-14", "WS-15", "WS-17", "WS-18", "WS-19", "WS-22", "DB-24", "DB-28", "XA-04", "XA-11", "CL-01",
        "CL-02", "CL-03", "CL-06", "CL-07", "CL-08", "CL-09", "CL-11", "CL-12", "CL-15", "CL-17", "CL-18",
        "BI-13", "BI-17", "BI-19", "BI-20", "BI-52",
        "DB-71", "DB-72", "BI-14", "BI-15", "BI-18", "BI-21", "BI-41", "BI-42", "BI-47", "BI-48",
    ]),
    (0, "it is about paging, or calls that are refused before the driver is reached: on each rung those that it has", &[
        "WS-25", "BI-01", "BI-03", "BI-04", "BI-05", "BI-06",
    ]),
    (0, "it is about fences and logs that the adapter is not asked for: it chooses its features itself", &[
        "NF-02", "LB-15", "XA-15", "XA-16",
    ]),
    (0, "it is about monitored fences, which every rung has, or chooses its rungs itself", &[
        "MF-01", "MF-02", "MF-03", "MF-04", "MF-05", "MF-06", "MF-07", "MF-08", "MF-10", "MF-11", "MF-13",
        "MF-14", "MF-15", "MF-19",
    ]),
    (0, "it asks what Windows answers to any client, or chooses its rungs itself", &[
        "WN-01", "WN-02", "WN-03", "WN-04", "WN-05", "WN-06", "WN-07", "WN-08", "WN-09", "WN-10", "WN-11", "WN-12",
        "WN-13", "WN-14", "WN-15", "WN-16", "WN-17", "WN-18", "WN-19", "WN-20", "WN-21", "WN-22", "WN-23", "WN-24",
        "WN-25", "WN-26", "WN-27", "WN-28", "WN-29", "WN-30",
    ]),
    (0, "it is about the start, the stop, or one DDI that every rung has", &[
        "ST-01", "ST-02", "ST-05", "ST-07", "ST-41", "ST-42", "ST-43", "ST-50", "ST-54", "ST-55", "ST-56",
        "ST-57", "ST-58", "ST-59", "ST-60", "ST-61", "ST-62", "ST-63", "ST-64", "ST-65", "ST-66", "ST-68",
        "ST-69", "ST-70", "ST-71", "ST-72", "ST-80", "ST-81", "ST-82", "ST-83", "ST-84", "ST-85", "ST-86", "ST-87",
        "ST-88", "ST-89", "ST-91", "ST-92", "ST-95", "ST-96",
        "DD-01", "DD-02", "DD-03", "DD-04", "DD-08", "DD-09", "DD-10", "DD-12", "DD-13",
        "DD-15", "DD-17", "DD-19", "DD-22", "DD-23", "DD-24", "CL-22",
    ]),
    (0, "it hangs a packet node, which every rung has", &[
        "TE-01", "TE-02", "TE-03", "TE-04", "TE-06", "TE-07", "TE-08", "TE-09", "TE-10", "TE-21", "TE-28", "TE-29",
        "TE-30", "TE-31", "TE-41", "TE-42", "TE-12", "TE-26", "TE-27", "TE-33", "TE-34", "TE-35", "TE-36", "TE-43",
        "TE-66", "TE-50", "TE-51", "TE-52", "TE-53", "TE-71", "TE-72", "TE-73", "TE-74", "TE-76", "TE-78", "TE-79",
        "TE-81", "TE-83", "TE-84", "TE-85", "TE-86", "TE-93", "TE-94", "TE-95",
        "TE-96", "TE-97", "TE-98", "TE-99", "TE-100", "TE-101", "TE-105", "TE-106", "TE-108",
    ]),
    (0, "it resets the adapter, which every rung has", &[
        "TA-01", "TA-03", "TA-04", "TA-06", "TA-07", "TA-08", "TA-10", "TA-11", "TA-12", "TA-13", "TE-45", "TE-75",
        "TA-20", "TA-21", "TA-22", "TA-23", "TA-24",
    ]),
    (0, "it takes the power from the device, which every rung has", &["RP-10"]),
    (0, "it is about paging, or the stop, which every rung has", &["RP-12", "RP-13", "RP-15", "RP-22", "PT-41", "PT-42"]),
    (2, "it maps native fences", &["RP-14"]),
    (3, "it is about rings, doorbells and engines that look for them", &[
        "RP-01", "RP-02", "RP-04", "RP-07", "RP-08", "RP-17", "RP-18", "PT-43", "PT-10",
    ]),
    (0, "it asks for work and contexts, which every rung has", &[
        "TE-19", "TE-20", "TE-23", "TE-24", "TE-32", "TE-61", "TE-62", "TE-63", "TE-64", "TE-65",
        "TE-87", "TE-88", "TE-89",
    ]),
    (1, "it makes hardware queues, or contexts for them", &[
        "TE-14", "TE-15", "TE-16", "TE-44", "TE-46", "TE-47", "TE-80", "TE-82", "TE-90", "TE-91",
        "TE-92", "TE-102", "TE-103", "TE-104", "TE-107", "TE-109",
        "DB-15", "DB-50", "MF-12", "MF-17", "MF-18", "CL-04", "CL-05", "CL-16", "CL-19", "BI-51", "BI-44",
        "DB-56", "DB-57", "DB-58", "DB-59", "DB-60",
    ]),
    (1, "it reads the logs of nodes that schedule in hardware", &["DD-11"]),
    (1, "it looks at the feature HWSCH", &["NF-21", "ST-04"]),
    (2, "it makes native fences", &[
        "NF-01", "NF-03", "NF-04", "NF-06", "NF-07", "NF-08", "NF-09", "NF-10", "NF-11", "NF-13", "NF-15",
        "NF-16", "NF-17", "NF-18", "NF-19", "NF-20", "NF-22", "NF-23", "NF-24", "NF-25", "NF-26", "NF-27",
        "NF-28", "NF-29", "NF-30", "NF-31", "WS-24", "WS-27", "MR-04", "MR-14", "MR-16", "MR-18", "MR-19", "MR-20",
        "MR-21", "DB-36",
        "XA-01", "XA-02", "XA-03", "XA-06", "XA-07", "XA-09", "XA-10", "XA-13", "XA-14", "XA-17", "XA-18", "MF-09",
        "MF-16", "BI-08", "CL-10", "CL-13", "CL-14", "CL-20",
    ]),
    (3, "it counts interrupts of native fences that queues wait for by themselves: on lower rungs the OS waits", &[
        "WS-26", "MR-01", "MR-02", "MR-03", "MR-06", "MR-07", "MR-08", "MR-09", "MR-10", "MR-11", "MR-15",
        "MR-17", "XA-12",
    ]),
    (3, "it hangs queues for doorbells, or resets them", &["TE-17", "TE-18", "TA-05", "TE-77"]),
    (3, "it takes the power from a device with doorbells", &["RP-05", "RP-06", "RP-19", "RP-20", "RP-21"]),
    (3, "it makes a queue for doorbells: its probes, its second kind of queue, or its rings", &[
        "WS-21", "WS-23", "DB-01", "DB-02", "DB-03", "DB-04", "DB-05", "DB-06", "DB-07", "DB-08", "DB-10",
        "DB-11", "DB-12", "DB-13", "DB-14", "DB-16", "DB-18", "DB-19", "DB-20", "DB-22", "DB-25", "DB-26",
        "DB-29", "DB-30", "DB-32", "DB-33", "DB-34", "DB-35", "DB-37", "DB-38", "DB-39", "DB-40", "DB-41", "DB-42",
        "DB-43", "DB-44",
        "DB-61", "DB-62", "DB-63", "DB-64", "DB-65", "DB-66", "DB-67", "DB-78", "DB-79", "DB-80", "DB-81", "DB-82",
        "DB-83", "DB-84", "DB-85", "DB-86", "DB-68", "DB-69",
        "DB-70", "DB-45", "DB-46",
        "DB-47", "DB-73", "DB-74", "DB-75", "DB-76", "DB-77",
        "DB-49", "DB-51", "DB-52", "DB-48", "DB-53", "DB-54", "DB-55", "BI-09",
        "BI-10", "BI-11", "BI-43", "BI-45", "BI-46", "BI-49", "BI-50", "BI-53", "BI-54", "ST-67", "ST-90", "DD-05",
        "DD-07",
        "DD-14", "DD-16", "DD-18", "DD-20", "DD-21", "CL-21",
    ]),
    (3, "it reads fence logs, which queues for doorbells have", &[
        "LB-01", "LB-02", "LB-03", "LB-04", "LB-06", "LB-07", "LB-09", "LB-10", "LB-12", "LB-13", "LB-14",
        "LB-16", "LB-17", "LB-18", "LB-19", "LB-20", "LB-21", "LB-22", "LB-23", "LB-24", "DD-06",
    ]),
    (3, "its clients are Linux processes with doorbells, whose pages and connections it looks at", &[
        "PT-01", "PT-02", "PT-03", "PT-04", "PT-05", "PT-06", "PT-08", "PT-11", "PT-12", "PT-13", "PT-14", "PT-15",
        "PT-16", "PT-17", "PT-18", "PT-19", "PT-20",
    ]),
    (3, "it climbs the rungs itself, from the highest down", &["ST-03", "ST-51", "ST-52", "ST-53"]),
];

/// The lowest rung on which the case with this id is played, 0 to 3, and why it is no lower; 0 for one of another
/// crate, which [skips](super::skip) by itself what it cannot play.
pub fn lowest(id: &str) -> (u32, &'static str) {
    let found = NEEDS.iter().find(|(.., ids)| ids.contains(&id));
    found.map_or((0, "it is not listed"), |(rung, why, _)| (*rung, why))
}

#[cfg(test)]
mod tests {
    use super::NEEDS;

    #[test]
    fn each_case_stands_in_the_table_once() {
        for case in crate::scenario::all() {
            let places = NEEDS.iter().filter(|(.., ids)| ids.contains(&case.id)).count();
            assert_eq!(places, 1, "{}: how often it is listed", case.id);
        }
        for id in NEEDS.iter().flat_map(|(.., ids)| *ids) {
            assert!(crate::scenario::all().any(|case| case.id == *id), "{id} is no case");
        }
    }

    #[test]
    fn what_windows_grants_first_is_well_covered() {
        let lowest = crate::scenario::all().filter(|case| super::lowest(case.id).0 == 0).count();
        assert!(lowest >= 60, "{lowest} cases on rung 0");
    }
}
