//! The Windows display driver interface: structures, enumerations, callbacks, function tables and thunk arguments of
//! WDDM 3.2 (Windows 11 24H2, kits 26100), under Microsoft's names.
//!
//! Everything that `d3dkmddi.h`, `d3dukmdt.h`, `d3dkmdt.h`, `d3dkmthk.h` and `dispmprt.h` declare is here, and has the
//! layout of 64-bit Windows on every 64-bit target. The crate has no behaviour: it calls nothing, allocates nothing,
//! and loads no function. It is generated from tables of facts; `abi/README.md` says how.
//!
//! # Where things are
//!
//! Every name of the five headers is in the crate's root, as it is in C. The modules sort them:
//!
//! | module | what |
//! | --- | --- |
//! | [`d3dkmddi`], [`d3dkmdt`], [`d3dkmthk`], [`d3dukmdt`], [`dispmprt`] | records, by header |
//! | [`enums`], [`macros`], [`guids`], [`aliases`] | enumerations, `#define`s, GUIDs, typedefs |
//! | [`callbacks`] | the types of all functions: `DXGKDDI_…`, `DXGKCB_…`, `D3DKMT…` |
//! | [`nt_types`] | what the headers take from NT (`HANDLE`, `LUID`, `GUID`, …), by hand |
//! | [`ntstatus`] | [`NTSTATUS`] and its values; only the type is in the root |
//! | [`slots`], [`exports`], [`bugchecks`], [`bugcodes`] | the function tables' slots, the thunk exports, bug checks: as data |
//! | [`variants`], [`kit_28000`] | records of older kits and of the next; never mixed with the rest |
//!
//! # Conventions
//!
//! **Records** are `repr(C)` or, in regions that C packs, `repr(C, packed)`. They are plain data ([`Plain`]): padding
//! is a member (hidden, `_paddingN`), so every byte is initialised and every bit pattern is a value. They are made by
//! `zeroed()`, which is what Windows callers pass; `Default` is not implemented, for zero is no driver's default. Name
//! what differs and take the rest: `X { A: 1, ..X::zeroed() }`.
//!
//! ```
//! use wddm_abi::*;
//! let args = DXGKARG_CREATENATIVEFENCE {
//!     Type: D3DDDI_NATIVEFENCE_TYPE::D3DDDI_NATIVEFENCE_TYPE_INTRA_GPU,
//!     ..DXGKARG_CREATENATIVEFENCE::zeroed()
//! };
//! # let _ = args;
//! ```
//!
//! **Types**: C's integers are Rust's (`UINT` is `u32`, `SIZE_T` is `usize`); typedefs with a meaning keep their name
//! (`D3DKMT_HANDLE`, `D3DGPU_VIRTUAL_ADDRESS`). Pointers are raw and keep their `const`.
//!
//! **Bit-fields** have `A()`, `set_A(value)` and, on flag words, `with_A(value)`, all `const`. One bit is a `bool`, an
//! enumeration is its open enumeration (read without sign, which C's would have), the rest the unit's integer. What
//! does not fit is dropped, as in C. A union of bit-fields and one integer is that integer: `Flags.Value`, and in
//! records where it has no name of its own, a member like any other (`pte.Flags`). Storage units without a name are
//! `bitsN`.
//!
//! **Unions** are Rust unions whose members only accessors reach, since safe code could otherwise make one with bytes
//! missing. The members of an anonymous union, and of structures in it, have accessors on the record, as C writes it:
//! `data.DmaCompleted()`, `data.DmaCompleted_mut()`, `data.set_DmaCompleted(value)`; numbers, handles and pointers have
//! no `_mut`. Reading another member than was written is defined: it gives the same bytes as another type. The union
//! itself is the member `uN`, its type `RECORD_uN`; structures and unions declared in place under a name are
//! `RECORD_Name`.
//!
//! ```
//! use wddm_abi::*;
//! let mut data = DXGKARGCB_NOTIFY_INTERRUPT_DATA::zeroed();
//! data.InterruptType = DXGK_INTERRUPT_TYPE::DXGK_INTERRUPT_DMA_COMPLETED;
//! data.DmaCompleted_mut().SubmissionFenceId = 7;
//! data.Flags.set_ValidPhysicalAdapterMask(true);
//! assert_eq!(data.DmaCompleted().SubmissionFenceId, 7);
//! ```
//!
//! **Enumerations** are open: a transparent structure with a constant per enumerator, so that any value can arrive
//! (`DXGK_INTERRUPT_TYPE(77)`). They compare, match as constants, and print by name. They hold an `i32`, or the integer
//! they are declared over.
//!
//! **Functions** have the calling convention of Windows on every target, which [`winfn!`] spells and [`win_extern!`]
//! defines functions with. `DXGKDDI_X` is the type of a function and never NULL, `PDXGKDDI_X` and `DXGKCB_X` are what
//! tables hold: an `Option`. `D3DKMTX` is the type of an export, `PFND3DKMT_X` an `Option` of it.
//!
//! ```
//! # use wddm_abi::*;
//! # fn notify(interface: &DXGKRNL_INTERFACE, data: &mut DXGKARGCB_NOTIFY_INTERRUPT_DATA) -> Option<()> {
//! let notify_interrupt = interface.DxgkCbNotifyInterrupt?;
//! // SAFETY: the interface is Dxgkrnl's, and this is called at the interrupt's level.
//! unsafe { notify_interrupt(interface.DeviceHandle, data) };
//! # Some(())
//! # }
//! ```
//!
//! # Sources
//!
//! Each record's documentation names its sources by letter: N, the SDK 26100.9169 headers; K, the WDK 28000 header
//! `dispmprt.h`; R, the 22621 headers (WDDM 3.1); D, Microsoft's documentation; C, C# bindings generated from a 26100
//! kit; N28, the SDK 28000 headers. The kernel-mode header `d3dkmddi.h` of 26100 itself was not seen: what only D and C
//! say is very likely, what C alone says has certain offsets and approximate types. Where a doubt is known, the item
//! says so.
//!
//! Offsets in the documentation count from the beginning of the record, also for members of aggregates inside it.
#![no_std]
#![expect(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    reason = "types, members and enumerators have Microsoft's names"
)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the layouts are those of 64-bit Windows");

mod bits;
pub mod bugchecks;
pub mod bugcodes;
mod call;
pub mod exports;
#[rustfmt::skip]
mod generated;
pub mod nt_types;
pub mod ntstatus;
mod open_enum;
mod plain;
pub mod slots;

pub use generated::aliases;
pub use generated::callbacks;
pub use generated::d3dkmddi;
pub use generated::d3dkmdt;
pub use generated::d3dkmthk;
pub use generated::d3dukmdt;
pub use generated::dispmprt;
pub use generated::enums;
pub use generated::guids;
pub use generated::kit_28000;
pub use generated::macros;
pub use generated::variants;

pub use aliases::*;
pub use callbacks::*;
pub use d3dkmddi::*;
pub use d3dkmdt::*;
pub use d3dkmthk::*;
pub use d3dukmdt::*;
pub use dispmprt::*;
pub use enums::*;
pub use guids::*;
pub use macros::*;
pub use nt_types::*;
pub use ntstatus::NTSTATUS;
pub use plain::Padding;
pub use plain::Plain;

pub(crate) use bugchecks::BugCheck;
pub(crate) use exports::Export;
pub(crate) use nt_types::opaque_types;
pub(crate) use open_enum::open_enum;
pub(crate) use plain::plain_struct;
pub(crate) use plain::plain_union;
pub(crate) use slots::SizeAt;
pub(crate) use slots::Slot;
