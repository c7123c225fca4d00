//! The demo: two processes work on a picture, one hangs its engine, the other's picture becomes complete.
//!
//! Process A embosses the picture on node 0, tile by tile, and signals a fence that process B opened. B composes the
//! tiles on node 1 and draws lines on node 0, where meanwhile a command buffer of A's jumps to itself for ever. Node 0
//! is reset, A's device is in error, and B's picture becomes complete. A driver that takes such a buffer off its engine
//! (`PreemptInBuffers` 1) hangs nothing: then both work side by side until A ends its buffer.
//!
//! | file | holds |
//! |---|---|
//! | `demo/recipe.rs` | what is made of a picture, and the same thing computed plainly |
//! | `demo/picture.rs` | pictures, as PNG files too |
//! | `demo/parts.rs` | what each process does |
//! | `demo/child.rs` | a process that the director started, by its standard input and output |
//! | `demo/play.rs` | who does it when, and whether all of it is right |

pub mod child;
pub mod parts;
mod picture;
pub mod play;
pub mod recipe;

pub use picture::Picture;
