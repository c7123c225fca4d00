#[derive(Debug)] pub(crate) struct Context;
