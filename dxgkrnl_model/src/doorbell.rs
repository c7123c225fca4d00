#[derive(Debug)] pub(crate) struct Doorbell;
pub(crate) mod callbacks { pub(crate) static CALLBACKS: &[nt_model::ShimEntry] = &[]; }
