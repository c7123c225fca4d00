//! Exception handlers of an image: whether an instruction lies in a `__try` whose handler may take what it raises.
//!
//! Source: x64 exception handling (Microsoft Learn, cpp/build/exception-handling-x64): RUNTIME_FUNCTION, UNWIND_INFO,
//! SCOPE_TABLE of `__C_specific_handler`. That of `__GSHandlerCheck_SEH` begins with the same table.

use super::{Image, pe, u32_at};

/// Bytes of a RUNTIME_FUNCTION: begin, end and unwind information, relative to the base.
const FUNCTION: usize = 12;
/// UNW_FLAG_EHANDLER: a handler for exceptions.
const HAS_HANDLER: u8 = 1;
/// UNW_FLAG_CHAININFO: what follows is the function that this part belongs to.
const IS_CHAINED: u8 = 4;
/// More parts of one function than this are a circle.
const MOST_PARTS: usize = 32;
/// More scopes than this in one function are no table of scopes.
const MOST_SCOPES: usize = 1024;
/// Bytes of a scope: begin, end, filter and target, relative to the base. A scope without a target is a `__finally`.
const SCOPE: usize = 16;

impl Image {
    /// Whether the function around `address` has a `__try` with an `__except` around that instruction. What its callers
    /// have is not looked at.
    pub(crate) fn is_in_try(&self, address: usize) -> bool {
        let Some(rva) = address.checked_sub(self.base()).and_then(|rva| u32::try_from(rva).ok()) else { return false };
        self.scopes_around(rva).is_some_and(|scopes| {
            scopes
                .chunks_exact(SCOPE)
                .any(|scope| (u32_at(scope, 0)..u32_at(scope, 4)).contains(&rva) && u32_at(scope, 12) != 0)
        })
    }

    /// The scopes of the function at `rva`; `None` where its handler has no such table.
    fn scopes_around(&self, rva: u32) -> Option<Vec<u8>> {
        let (start, size) = self.headers.directories[pe::directory::EXCEPTION];
        let functions = self.at_rva(start as usize, size as usize)?;
        let function = functions.chunks_exact(FUNCTION).find(|f| (u32_at(f, 0)..u32_at(f, 4)).contains(&rva))?;
        let mut unwind = u32_at(function, 8) as usize;
        for _ in 0..MOST_PARTS {
            let head = self.at_rva(unwind, 4)?;
            // Version and flags, size of the prologue, count of codes, frame register. Codes have two bytes each, and
            // come in pairs.
            let behind = unwind + 4 + 2 * usize::from(head[2]).next_multiple_of(2);
            let flags = head[0] >> 3;
            if flags & IS_CHAINED != 0 {
                unwind = u32_at(&self.at_rva(behind, FUNCTION)?, 8) as usize;
                continue;
            }
            if flags & HAS_HANDLER == 0 {
                return None;
            }
            let count = u32_at(&self.at_rva(behind + 4, 4)?, 0) as usize;
            let scopes = self.at_rva(behind + 8, count.min(MOST_SCOPES) * SCOPE)?;
            // Data of another language's handler is no such table.
            let is_sound = |scope: &[u8]| u32_at(scope, 0) < u32_at(scope, 4) && u32_at(scope, 12) < self.headers.size;
            return (count <= MOST_SCOPES && scopes.chunks_exact(SCOPE).all(is_sound)).then_some(scopes);
        }
        None
    }
}
