//! What cases are about the render-only form of the driver, and cannot be played with `ComputeOnly`, and why.

/// A case and why it is played with the render-only form alone.
const RENDER_ONLY: &[(&str, &str)] = &[
    ("ST-50", "it is about answers that a compute-only driver is not asked for, flip capabilities among them"),
    ("ST-54", "it asks for types that a compute-only driver must refuse"),
    ("TA-12", "it is about a driver that resets no engines, and a compute-only driver must"),
    ("TE-71", "it is about DxgkDdiQueryCurrentFence, which a compute-only driver must not have"),
    ("DD-04", "it is about DxgkDdiQueryCurrentFence, which a compute-only driver must not have"),
];

/// Why a case is played with the render-only form alone; `None` for one that is played with both.
pub fn render_only(id: &str) -> Option<&'static str> {
    RENDER_ONLY.iter().find(|(case, _)| *case == id).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::RENDER_ONLY;

    #[test]
    fn the_list_names_cases_that_there_are_once_each() {
        for (at, (id, why)) in RENDER_ONLY.iter().enumerate() {
            assert!(crate::scenario::all().any(|case| case.id == *id), "{id} is no case");
            assert!(!why.is_empty() && RENDER_ONLY[..at].iter().all(|(other, _)| other != id), "{id}");
        }
    }
}
