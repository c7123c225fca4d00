//! Processes that are Linux processes of their own: a client of the machine beside it, with the user-mode driver in it.
//!
//! The client is this program again, with a role to play ([`roles`]). Its thunks are messages over a Unix socket, a
//! connection per thread; everything hot is memory that both have mapped. What the machine maps into the process it
//! tells the process's agent, a thread that maps it and answers; the machine goes on when it has.
//!
//! The machine's process is not dumpable, and as root it gives the client another user: so a client reaches no more of
//! it than the files that it was handed, of which each holds one object.
//!
//! What shares a file with other memory is not handed over, since a client could reach all of it: allocations in a
//! segment that the CPU sees, which is one object of the driver's. `D3DKMTLock2` of such an allocation is
//! STATUS_NO_MEMORY for a client, as where a process has no addresses left; on Windows it works. No allocation of
//! Fencepost's is of that kind: those in its local segment are not visible to the CPU, and the call is refused for
//! every process (STATUS_INVALID_PARAMETER).
//!
//! | file | holds |
//! |---|---|
//! | `wire.rs` | messages |
//! | `agent.rs` | the machine's side of an agent |
//! | `server.rs` | [`Separate`]: a client process as the machine has it; its connections |
//! | `calls.rs` | what a message of a client's thread comes to |
//! | `client.rs` | the client's side: its agent, its connections, its start |
//! | `stubs.rs` | gdi32 and kernel32 of a client |
//! | `roles.rs` | what clients do |

mod agent;
mod calls;
mod client;
pub mod roles;
mod server;
mod stubs;
mod wire;

pub use client::main;
pub use server::Separate;
