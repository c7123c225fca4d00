//! Writes `abi/src` from `abi/facts`.
fn main() {}
