pub(crate) mod native { #[derive(Debug)] pub(crate) struct FenceOnAdapter; #[derive(Debug)] pub(crate) struct LocalFence; }
