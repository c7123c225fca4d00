//! Wrong on purpose: what a crate can leave out or swap so that a test sees that something notices.

/// Makes a crate's `Mutation`, one way to be wrong, and `Chosen`, which of them is on.
///
/// Compiled away unless the crate's feature `mutants` is on; then one number chooses.
#[macro_export]
macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident = $n:literal,)*) => {
        /// One way to be wrong.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        pub enum Mutation { $($(#[$doc])* $name = $n,)* }

        impl Mutation {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Name, as tests and messages print it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }

        /// Which mutation is on, if any.
        pub struct Chosen(core::sync::atomic::AtomicU32);

        impl Chosen {
            /// None.
            pub const fn none() -> Self {
                Self(core::sync::atomic::AtomicU32::new(0))
            }

            /// Switches to the mutation with this number; 0 and unknown numbers switch it off. Nothing happens without
            /// the feature `mutants`.
            pub fn set(&self, raw: u32) {
                if cfg!(feature = "mutants") {
                    self.0.store(raw, core::sync::atomic::Ordering::Relaxed);
                }
            }

            /// Returns whether none is on. Always true without the feature `mutants`.
            #[inline]
            pub fn is_none(&self) -> bool {
                !cfg!(feature = "mutants") || self.0.load(core::sync::atomic::Ordering::Relaxed) == 0
            }

            /// Returns whether `mutation` is on. Always false without the feature `mutants`.
            #[inline]
            pub fn is(&self, mutation: Mutation) -> bool {
                cfg!(feature = "mutants") && self.0.load(core::sync::atomic::Ordering::Relaxed) == mutation as u32
            }
        }
    };
}
