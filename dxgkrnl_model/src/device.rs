#[derive(Debug)] pub(crate) struct Device;
