//! Stage 3 of 8: the doorbell.
//!
//! A physical doorbell is one 64-bit word at offset 0 of pages of its own: whole pages, since Dxgkrnl maps them to user
//! mode. User mode stores a non-zero value; the engine sees it and looks at the published write pointer. The write
//! pointer rules: the value is a hint and may be stale, wrong or made up (SPEC §4). Zero is not a ring.
//!
//! Source: *User-mode work submission*, "Doorbells": dedicated and global models.

/// Offset of the doorbell word in its pages, in bytes.
pub const DOORBELL_OFFSET: usize = 0;

/// Which of the article's two models the adapter uses (registry value `DoorbellModel`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Model {
    /// Every connected queue has a physical doorbell of its own.
    Dedicated,
    /// All queues share one physical doorbell; the value names the queue.
    Global,
}

impl Model {
    /// The number that private data carries.
    pub const fn raw(self) -> u32 {
        match self {
            Self::Dedicated => 0,
            Self::Global => 1,
        }
    }

    /// The model that `raw` names.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::Dedicated),
            1 => Some(Self::Global),
            _ => None,
        }
    }
}

/// The queue's name in a global doorbell: the upper 24 bits of the value. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token(u32);

impl Token {
    /// Largest token.
    pub const MAX: u32 = (1 << 24) - 1;

    /// A token, or `None` for zero and for what does not fit 24 bits.
    pub const fn new(raw: u32) -> Option<Self> {
        if raw == 0 || raw > Self::MAX { None } else { Some(Self(raw)) }
    }

    /// The token of the queue with this index: the index, moved up so that it is not zero, within 24 bits.
    pub const fn of_index(index: u32) -> Self {
        Self((index & (Self::MAX >> 1)) + 1)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

const COUNT_BITS: u32 = 40;

/// What user mode stores for a write pointer: the token above the pointer's low 40 bits. With a dedicated doorbell the
/// token is ignored; it is always there, so that the value is never zero.
pub const fn value(token: Token, write_pointer: u64) -> u64 {
    ((token.0 as u64) << COUNT_BITS) | (write_pointer & ((1 << COUNT_BITS) - 1))
}

/// The token in a doorbell value, if it has one.
pub const fn token_of(value: u64) -> Option<Token> {
    // CAST: 24 bits remain.
    Token::new((value >> COUNT_BITS) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_never_zero_and_keeps_its_token() {
        for raw in [1, 2, 77, Token::MAX] {
            let token = Token::new(raw).unwrap();
            for wp in [0, 8, u64::MAX, 1 << 40] {
                assert_ne!(value(token, wp), 0);
                assert_eq!(token_of(value(token, wp)), Some(token));
            }
        }
    }

    #[test]
    fn zero_and_oversized_tokens_are_refused() {
        assert_eq!(Token::new(0), None);
        assert_eq!(Token::new(Token::MAX + 1), None);
        assert_eq!(token_of(5), None);
    }
}
