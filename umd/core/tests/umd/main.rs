//! Tests of the user-mode driver against a mock of the thunks that also plays a small GPU.

mod mock;

mod adapters;
mod c_abi;
mod fences;
mod golden;
mod header;
mod kernel_paths;
mod loom;
mod memory;
mod mutants;
mod publish;
mod queues;
mod submission;
mod together;
mod traces;
