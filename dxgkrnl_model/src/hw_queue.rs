#[derive(Debug)] pub(crate) struct HwContext;
#[derive(Debug)] pub(crate) struct HwQueue;
