//! `std` as wdk-build finds it on a Linux host: the real one, and the one function of `std::os::windows` that wdk-build
//! names. It names it in its support for cargo-make, which no build script calls.
pub use ::std::*;

pub mod os {
    pub use ::std::os::*;

    pub mod windows {
        pub mod fs {
            use ::std::io;
            use ::std::path::Path;

            pub fn symlink_file<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
                ::std::os::unix::fs::symlink(from, to)
            }
        }
    }
}
