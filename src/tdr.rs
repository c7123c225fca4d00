//! The suite of timeouts: the jobs of `portable_cases`, each by the conformance cases that play it over the model. The
//! portable part of a job is one of them.

pub use portable_cases::jobs::{JOBS, Job, REQUIREMENT, find};

/// The rungs on which the jobs are played, where no setting says otherwise: packets alone, and everything.
pub const RUNGS: [u8; 2] = [0, 3];

/// The cases of each job: every one must hold.
#[rustfmt::skip]
const CASES: &[(&str, &[&str])] = &[
    ("claim", &["TE-01", "TE-14", "TE-26", "ST-05", "TE-87"]),
    ("two-device", &["TE-03", "TE-04", "TE-17", "TE-61"]),
    ("long-no-tdr", &["TE-07", "TE-20", "TE-62"]),
    ("long-tdr", &["TE-08", "TE-63"]),
    ("police-ddi", &["BI-19", "TE-76", "TA-24"]),
    ("large-payload", &["TE-09", "TE-64"]),
    ("lockout", &["TA-06", "TA-07"]),
    ("preemption", &["TA-11", "TE-26", "TE-65"]),
    ("granularity", &["TE-41", "TE-42", "TE-74", "TE-88"]),
    ("escalation", &["TE-10", "TE-12", "TE-16", "TE-35", "TE-75", "TE-85", "TA-01"]),
    ("storm", &["TE-27", "TE-89"]),
];

/// The cases of the job with this short name.
pub fn cases(id: &str) -> &'static [&'static str] {
    CASES.iter().find(|(of, _)| *of == id).map_or(&[], |(_, cases)| *cases)
}

/// The list of `jobs`: of each its names, its criterion with its source, the kit's jobs, and the cases.
pub fn list(jobs: &[&Job]) -> String {
    let line = |job: &Job| {
        let Job { id, name, criterion, source, kit, published, portable } = job;
        let kit: String = kit.iter().map(|name| format!("      kit: {name}\n")).collect();
        let cases = cases(id).join(" ");
        let windows = portable.map_or_else(|why| format!("over the model alone: {why}"), |_| "portable".to_owned());
        format!(
            "{id:14}{name}\n      {criterion}\n      {source}\n{kit}      published: {published}\n      {windows}\n      \
             {cases}\n"
        )
    };
    jobs.iter().copied().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::all;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Where cases ask whether they play all of what they are about, which [`Stage::whole`] says, and the cases.
    const IN_PARTS: &[(&str, &[&str])] =
        &[("ta/kept.rs", &["TA-24"]), ("te/long.rs", &["TE-41", "TE-42"]), ("te/policed.rs", &["TE-76"])];

    /// The files below `folder` that ask, by their names below `root`.
    fn asks(root: &Path, folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                asks(root, &path, found);
            } else if std::fs::read_to_string(&path).unwrap().contains("stage.is_whole()") {
                found.insert(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }

    /// The suite of cases plays a part of these; the whole is this command's.
    #[test]
    fn what_is_played_in_parts_is_whole_in_a_job() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/scenario");
        let mut found = BTreeSet::new();
        asks(&root, &root, &mut found);
        assert_eq!(found, IN_PARTS.iter().map(|(file, _)| (*file).to_owned()).collect());
        for case in IN_PARTS.iter().flat_map(|(_, cases)| *cases) {
            assert!(CASES.iter().any(|(_, cases)| cases.contains(case)), "{case} is in no job");
        }
    }

    #[test]
    fn every_job_has_cases_that_there_are_and_a_name_of_its_own() {
        let known: BTreeSet<_> = all().map(|case| case.id).collect();
        assert_eq!(
            CASES.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            JOBS.iter().map(|job| job.id).collect::<Vec<_>>()
        );
        for job in JOBS {
            let cases = cases(job.id);
            assert!(!cases.is_empty() && cases.iter().all(|case| known.contains(case)), "{}", job.id);
            assert_eq!(find(&job.id.to_uppercase()).map(|found| found.name), Some(job.name));
            assert_eq!(find(job.name).map(|found| found.id), Some(job.id));
        }
        assert!(find("no-such-job").is_none());
        // The kit's own names find them as well, and none is there twice.
        let kit: Vec<_> = JOBS.iter().flat_map(|job| job.kit.iter().map(move |name| (*name, job.id))).collect();
        assert_eq!((kit.len(), kit.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len()), (21, 21));
        for (name, id) in kit {
            assert_eq!(find(name).map(|found| found.id), Some(id), "{name}");
        }
        assert!(JOBS.iter().all(|job| !job.published.is_empty()));
    }
}
