//! Which groups of cases there are, and what each is about.

use super::{Scenario, all};

/// A group: the cases whose ids begin with its two letters.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The letters.
    pub name: &'static str,
    /// What its cases are about.
    pub title: &'static str,
}

impl Group {
    /// Its cases.
    pub fn cases(&self) -> impl Iterator<Item = &'static Scenario> {
        all().filter(|case| case.group() == self.name)
    }
}

/// Every group, in the order of [`all`].
pub const GROUPS: &[Group] = &[
    Group { name: "NF", title: "native fences: lifetime, storage, sharing" },
    Group { name: "WS", title: "waits and signals, by the CPU and by the GPU" },
    Group { name: "MR", title: "the race of CurrentValue, MonitoredValue and interrupt" },
    Group { name: "LB", title: "log buffers of native fences" },
    Group { name: "DB", title: "hardware queues and doorbells" },
    Group { name: "XA", title: "fences across adapters" },
    Group { name: "MF", title: "monitored fences, on every rung" },
    Group { name: "BI", title: "bad input, and processes that harm others" },
    Group { name: "ST", title: "start, negotiation, queries" },
    Group { name: "DD", title: "each function of the driver's table does what its page says" },
    Group { name: "CL", title: "clients as other vendors' user-mode drivers are" },
    Group { name: "TE", title: "timeouts: engines that hang, and their reset" },
    Group { name: "TA", title: "timeouts: the reset of the adapter" },
    Group { name: "RP", title: "memory, and the power of the device" },
    Group { name: "PT", title: "processes of their own: Linux processes beside the machine's" },
    Group { name: "WN", title: "what Windows was seen to answer, and what monitors ask" },
];

#[cfg(test)]
mod tests {
    use super::GROUPS;
    use crate::scenario::all;

    #[test]
    fn the_groups_are_those_of_the_cases() {
        let mut names: Vec<_> = all().map(|case| case.group()).collect();
        names.dedup();
        assert_eq!(names, GROUPS.iter().map(|group| group.name).collect::<Vec<_>>());
    }
}
