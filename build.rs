//! The one build script: WDK settings for `kmd` and `umd` on Windows; nothing elsewhere.
fn main() {}
