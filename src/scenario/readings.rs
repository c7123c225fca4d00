//! Which cases cannot be played under which reading of the documents, and why.
//!
//! A case that is about a choice of Windows sets it by itself. Those listed here are about something that does not
//! exist, or cannot be seen, under the reading.

/// A reading, why these cases are not played under it, and which.
type Exception = (&'static str, &'static str, &'static [&'static str]);

#[rustfmt::skip]
const EXCEPTIONS: &[Exception] = &[
    (
        "progress-never-opened",
        "they count interrupts or look for the queue's own fence, and a progress fence that the driver was never told \
         of interrupts at each signal, and the OS then looks at every fence",
        &[
            "NF-16", "XA-04", "WS-02", "WS-03", "WS-04", "WS-05", "WS-06", "WS-11", "WS-19", "WS-24", "WS-26", "MR-01", "MR-21",
            "MR-02", "MR-06", "MR-07", "MR-08", "MR-09", "MR-10", "MR-11", "LB-10", "LB-14", "LB-17", "LB-18", "LB-20",
            "LB-21", "XA-12", "XA-17", "MF-09", "DB-61",
        ],
    ),
    ("obsolete-contexts", "it plays both ways itself", &["CL-04"]),
    ("obsolete-contexts", "the call that it is about does not exist there", &["CL-03"]),
    ("creator-locks", "it plays both ways itself", &["CL-08"]),
    ("progress-opened-late", "it plays each way itself", &["CL-10"]),
    ("progress-never-opened", "it plays each way itself", &["CL-10"]),
    ("kernel-progress-monitored", "it plays each way itself", &["CL-10"]),
    ("no-fence-questions", "it is about these questions, without which the packet times out", &["DD-04", "TE-71"]),
    ("w28000", "a distance of 0 is another there", &["NF-06"]),
    ("w28000", "the user-mode driver makes no queue for doorbells there, so that the OS waits", &["TE-77"]),
    (
        "w28000",
        "the user-mode driver submits through the kernel there, by messages and without a doorbell",
        &[
            "PT-01", "PT-02", "PT-03", "PT-06", "PT-11", "PT-12", "PT-13", "PT-15", "DB-06", "DB-11", "DB-12", "DB-29",
            "DB-44", "DB-48", "DB-61", "DB-68",
        ],
    ),
    (
        "w28000",
        "they are about what the user-mode driver's doorbells bring with them (logs of native fences, signals without an \
         interrupt, the way of submission), and there it submits through the kernel",
        &[
            "TE-29", "WS-02", "WS-03", "WS-04", "WS-05", "WS-06", "WS-11", "WS-19", "WS-21", "WS-23", "WS-26",
            "MR-01", "MR-02", "MR-03", "MR-06", "MR-07", "MR-08", "MR-09", "MR-10", "MR-11", "MR-17", "LB-02",
            "LB-03", "LB-04", "LB-12", "LB-06", "LB-09", "LB-10", "LB-14", "LB-17", "LB-19", "XA-12", "BI-05",
            "DB-73", "ST-01", "ST-03", "ST-07", "ST-42", "ST-43", "ST-50", "ST-52", "ST-70", "ST-72", "ST-62",
            "DD-01", "DD-06",
        ],
    ),
    ("w28000", "it plays both builds itself", &["ST-90"]),
    ("w28000", "it plays each way itself", &["CL-10"]),
    ("over-budget", "it plays each way itself", &["CL-07"]),
    ("compute-by-filter", "it plays each way itself", &["ST-69"]),
    ("paging-at-once", "it plays each way itself", &["CL-07"]),
    (
        "obsolete-contexts",
        "they ask D3DKMTCreateContextVirtual for what the obsolete call does not have: NullRendering, and no private \
         data",
        &["ST-56", "DD-10", "DB-71", "CL-14", "CL-20", "BI-20"],
    ),
    (
        "progress-never-opened",
        "its queue does not know its own fence, so nothing but the list of open fences leads to it",
        &["CL-14"],
    ),
    ("no-packet-contexts", "it plays both ways itself", &["CL-04"]),
    ("kernel-progress-monitored", "it counts interrupts of a kernel-mode queue's native progress fence", &["XA-18"]),
    ("created-behind-d3", "it plays both ways itself", &["RP-06"]),
    ("no-scheduling-logs", "without a log nothing tells a queue that waits from one that stalls", &["CL-13"]),
    (
        "paging-engine-signals",
        "they count interrupts, and each paging operation raises one for a monitored fence",
        &["MR-02", "MR-10"],
    ),
    (
        "fences-mapped-late",
        "they use addresses of fences in packets of their own, without the user-mode driver, which would have waited",
        &["NF-25", "WS-11", "WS-26", "WS-27", "MR-03", "XA-02", "XA-03", "XA-06", "XA-07"],
    ),
    ("fences-mapped-late", "it makes more fences than there is time to wait for", &["NF-13"]),
    ("no-flip-caps-needed", "it is about flip capabilities", &["ST-50"]),
    ("packet-cap-of-queues", "it is about the number of each queue, which is higher", &["DB-36"]),
    ("packet-cap-of-queues", "it plays each way itself", &["DB-56"]),
    (
        "flagless-opening",
        "they open shared fences by direct calls with the flags of their creation",
        &[
            "NF-06", "NF-10", "NF-15", "NF-17", "NF-18", "NF-26", "WS-27", "MF-19", "BI-45", "BI-46", "DD-05", "TE-45",
            "RP-19", "WN-17",
        ],
    ),
    (
        "performance-polled",
        "they count calls of the driver, or look at how much processor time its threads leave",
        &["DB-61", "DD-21"],
    ),
    ("kernel-queue-logs", "it plays both ways itself", &["LB-15"]),
    (
        "local-in-64k",
        "it maps local memory by pages of 4 KB itself",
        &["DD-08", "DB-59"],
    ),
    ("w26100-ga", "the record that opens a native fence has no reserved bytes there", &["NF-28"]),
    (
        "fences-mapped-late",
        "they look at fences by their GPU addresses right behind the call that made them",
        &["NF-03", "NF-23", "NF-26", "DD-05", "DD-10", "TE-43", "TE-94", "BI-42", "CL-13"],
    ),
    ("gpu-exception", "they name the status that is another one there", &["DB-26", "DB-57", "BI-20"]),
    ("paging-engine-signals", "the last process maps memory behind the stop, and nothing signals that it is done", &["ST-82"]),
    ("no-scheduling-logs", "it is about what they say, or wants every function called", &["DD-01", "WN-13"]),
    (
        "one-packet",
        "they have several packets with the driver",
        &["TE-04", "TE-10", "TE-33", "TE-35", "TE-53", "TE-81", "TE-91"],
    ),
    ("no-packet-contexts", "it makes packet contexts on any node", &["BI-45"]),
    ("over-budget", "it makes memory resident by direct calls, once", &["BI-45"]),
    ("queues-end-at-once", "it is about what the end of a queue waits for", &["DB-76"]),
    ("refusals-end-start", "it starts the compute-only form, which must refuse such queries", &["ST-50"]),
    ("paging-at-once", "they hold paging back while their own calls return", &["TE-50", "TE-92"]),
    ("hasty-preemption", "who runs is drawn anew before the next has come far enough to be counted", &["DB-71"]),
    ("preempts-late", "nothing takes a packet node from what does not end there", &["DB-71"]),
    ("preempts-late", "they are about preemption in ordinary use, of which there is none", &["TE-31", "TE-41", "TE-42", "TE-73", "TE-74", "TE-83", "TE-93", "TE-96"]),
    ("gpu-exception", "it names the status that is another one there", &["BI-42"]),
    ("gpu-exception", "it plays both ways itself", &["CL-18"]),
    ("no-physical-adapter-caps", "it plays each way itself", &["ST-72"]),
    ("no-physical-adapter-caps", "it looks for this question, or for a member of the answer", &["ST-01", "ST-50"]),
    ("physical-adapter-caps-needed", "it plays each way itself", &["ST-72"]),
    ("power-components-needed", "it plays both ways itself", &["ST-54"]),
    ("copy-node-pages", "it plays both ways itself", &["ST-71"]),
    ("refusals-end-start", "it refuses such queries under both readings", &["ST-54"]),
    ("refusals-end-start", "its compute-only driver must refuse such queries", &["ST-62", "ST-69"]),
    ("affinity-passed", "it plays both ways itself", &["TE-32"]),
    ("kernel-progress-monitored", "they are about native progress fences of kernel-mode queues", &["WS-24", "MF-09", "CL-14"]),
    ("no-test-signing", "it plays both ways itself", &["BI-20"]),
    ("no-test-signing", "it counts kernel-mode testing among the features", &["ST-53"]),
    ("paging-at-once", "a call that pages returns behind the paging there, and it has a reset amid both", &["TE-91"]),
    ("paging-at-once", "it watches the values of a paging fence, and here there are none to wait for", &["WS-25"]),
];

/// Why the case with this id is not played under the reading with this name; `None` if it is.
pub(super) fn why_not(id: &str, reading: &str) -> Option<&'static str> {
    EXCEPTIONS.iter().find(|(name, _, ids)| *name == reading && ids.contains(&id)).map(|(_, why, _)| *why)
}

/// The names of the readings that the case with this id is not played under; empty for most.
pub(super) fn not_under(id: &str) -> Vec<&'static str> {
    EXCEPTIONS.iter().filter(|(.., ids)| ids.contains(&id)).map(|(reading, ..)| *reading).collect()
}

#[cfg(test)]
mod tests {
    use super::EXCEPTIONS;
    use dxgkrnl_model::personality::family::names;

    #[test]
    fn exceptions_name_readings_and_cases_that_there_are() {
        for (reading, why, ids) in EXCEPTIONS {
            assert!(names().contains(reading) && !why.is_empty(), "{reading}");
            for id in *ids {
                assert!(crate::scenario::all().any(|case| case.id == *id), "{id}");
            }
        }
    }
}
