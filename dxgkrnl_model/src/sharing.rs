#[derive(Debug)] pub(crate) struct SharedObjects; impl SharedObjects { pub(crate) fn new() -> Self { Self } }
