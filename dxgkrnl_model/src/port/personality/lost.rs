//! Memory that loses its content.

/// How VidMm says, between the two functions of a reset, that the content of an allocation in a memory segment is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LostBy {
    /// `DXGK_OPERATION_TRANSFER` of no bytes, which names the place. Source: article thread-synchronization-and-tdr,
    /// which is older than GPU virtual addresses.
    #[default]
    Place,
    /// `DXGK_OPERATION_VIRTUAL_TRANSFER` of no bytes, as all other paging with GPU virtual addresses.
    Address,
}
