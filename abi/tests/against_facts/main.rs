//! `wddm_abi` against the fact tables, which are parsed here by other code than the generator's.
//!
//! `generated` has a row for everything that the tables name; a row holds what the compiler says (`offset_of!`, sizes)
//! or a way to find out by running an accessor. The tests compare rows and tables, in both directions.

mod callbacks;
mod data;
mod enums;
#[rustfmt::skip]
mod generated;
mod layout;
mod probe;
mod tables;
mod tsv;
