#[derive(Debug)] pub(crate) struct Tdr;
impl Tdr { pub(crate) fn new() -> Self { Self } }
pub(crate) mod callbacks { pub(crate) static CALLBACKS: &[nt_model::ShimEntry] = &[]; }
