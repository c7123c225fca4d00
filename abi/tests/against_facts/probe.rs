//! Rows of what the compiler says, and functions that find out the rest by running accessors.

use wddm_abi::Plain;
use wddm_abi::winfn;

/// A record and how to reach every line that the table has for it.
pub struct RecordProbe {
    /// The leading column of the table, if it has one.
    pub group: &'static str,
    /// The record's name.
    pub name: &'static str,
    /// `size_of`.
    pub size: usize,
    /// `align_of`.
    pub align: usize,
    /// The path of each line, and what is there.
    pub rows: &'static [(&'static str, Reach)],
    /// Loads or stores the member or bit-field of a row, by its number, in a record that is given as bytes.
    pub access: fn(&mut [u8], usize, Op<'_>),
}

/// What is known of one line.
#[derive(Debug, Clone, Copy)]
pub enum Reach {
    /// A field: `offset_of!` and its size.
    Field(Extent),
    /// A member behind accessors: its size.
    Leaf(usize),
    /// A bit-field behind accessors.
    Bits,
    /// Declared in place, a Rust type of its own: its size.
    Nested(usize),
    /// Declared in place, dissolved into what is around it.
    Dissolved,
}

/// Bytes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The first.
    pub offset: usize,
    /// How many.
    pub size: usize,
}

/// What an accessor is to do. A bit-field's value is eight bytes.
pub enum Op<'a> {
    /// Store this value.
    Store(&'a [u8]),
    /// Append the value.
    Load(&'a mut Vec<u8>),
}

/// The value that `bytes` are.
pub fn load<T: Plain>(bytes: &[u8]) -> T {
    T::from_bytes(bytes).expect("enough bytes")
}

/// Makes `bytes` those of `value`.
pub fn store<T: Plain>(bytes: &mut [u8], value: &T) {
    bytes.copy_from_slice(value.as_bytes());
}

/// The value of a bit-field.
pub fn as_u64(value: impl Into<u64>) -> u64 {
    value.into()
}

/// The size of what a pointer points to.
pub const fn size_of_pointee<T>(_: *const T) -> usize {
    size_of::<T>()
}

macro_rules! field {
    ($record:ident, $path:literal, $($place:tt)+) => {
        ($path, $crate::probe::Reach::Field($crate::probe::Extent {
            offset: core::mem::offset_of!($record, $($place)+),
            size: {
                let record = <$record>::zeroed();
                $crate::probe::size_of_pointee(&raw const record.$($place)+)
            },
        }))
    };
}

macro_rules! leaf {
    ($op:ident, $type:ty, $v:ident, $set:expr, $get:expr) => {
        match $op {
            $crate::probe::Op::Store(bytes) => {
                let $v: $type = $crate::probe::load(bytes);
                $set;
            }
            $crate::probe::Op::Load(out) => out.extend_from_slice(wddm_abi::Plain::as_bytes(&$get)),
        }
    };
}

macro_rules! bits {
    ($op:ident, $v:ident, $set:expr, $get:expr) => {
        match $op {
            $crate::probe::Op::Store(bytes) => {
                let $v: u64 = $crate::probe::load(bytes);
                $set;
            }
            $crate::probe::Op::Load(out) => out.extend_from_slice(&$crate::probe::as_u64($get).to_le_bytes()),
        }
    };
}

pub(crate) use bits;
pub(crate) use field;
pub(crate) use leaf;

impl RecordProbe {
    /// What a store of `value` to row `row` leaves of a record full of `fill`, and what a load then finds.
    fn stored(&self, row: usize, fill: u8, value: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut record = vec![fill; self.size];
        (self.access)(&mut record, row, Op::Store(value));
        let mut loaded = Vec::new();
        (self.access)(&mut record, row, Op::Load(&mut loaded));
        (record, loaded)
    }

    /// Where the accessors of row `row` have their member of `size` bytes.
    pub fn measure(&self, row: usize, size: usize) -> Result<Extent, String> {
        let mut found = None;
        for (fill, value) in [(0, 0xff), (0xff, 0)] {
            let (record, loaded) = self.stored(row, fill, &vec![value; size]);
            let changed: Vec<usize> = (0..self.size).filter(|&index| record[index] != fill).collect();
            let offset = changed.first().copied().unwrap_or(0);
            if changed != (offset..offset + size).collect::<Vec<_>>() {
                return Err(format!("a store of {size} bytes changes the bytes {changed:?}"));
            }
            if found.is_some_and(|known| known != offset) || loaded != vec![value; size] {
                return Err("what is stored and what is loaded differ".to_owned());
            }
            found = Some(offset);
        }
        let offset = found.unwrap_or(0);
        let value: Vec<u8> = (0..size).map(|index| index as u8 ^ 0xa5).collect();
        let (record, loaded) = self.stored(row, 0, &value);
        if record[offset..offset + size] != value || loaded != value {
            return Err("the bytes of a value are stored in another order".to_owned());
        }
        Ok(Extent { offset, size })
    }

    /// The lowest bit of the bit-field of `width` bits that the accessors of row `row` reach; bit 0 of byte 0 is 0.
    ///
    /// Sets all its bits on zeros, clears them on ones, then sets each alone, and looks at every bit of the record.
    pub fn measure_bits(&self, row: usize, width: u32) -> Result<usize, String> {
        let stored = |fill: u8, value: u64| {
            let (record, loaded) = self.stored(row, fill, &value.to_le_bytes());
            (set_bits(&record), load::<u64>(&loaded))
        };
        let all = u64::MAX >> (64 - width);
        // Bits of a value beyond the field's width must not leak. (A one-bit field takes a bool.)
        let (ones, loaded) = stored(0, u64::MAX);
        let lowest = *ones.first().ok_or("a store of ones changes nothing")?;
        let field = |value: u64| -> Vec<usize> {
            (0..width as usize).filter(|bit| value >> bit & 1 == 1).map(|bit| lowest + bit).collect()
        };
        if ones != field(all) || loaded != all {
            return Err(format!("a store of ones sets the bits {ones:?}"));
        }
        let others: Vec<usize> = (0..self.size * 8).filter(|bit| !ones.contains(bit)).collect();
        if stored(0xff, 0) != (others, 0) {
            return Err("a store of zero clears other bits or not all".to_owned());
        }
        for bit in 0..width {
            if stored(0, 1 << bit) != (field(1 << bit), 1 << bit) {
                return Err(format!("a store of 1 << {bit} goes elsewhere"));
            }
        }
        Ok(lowest)
    }
}

fn set_bits(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len() * 8).filter(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 1).collect()
}

/// An enumeration: its name, its size, its values.
pub struct EnumRow {
    /// Its name.
    pub name: &'static str,
    /// `size_of`.
    pub size: usize,
    /// Name and value of every enumerator, and what `Debug` prints for it.
    pub values: fn() -> Vec<(&'static str, i128, String)>,
}

macro_rules! enumeration {
    ($name:ident) => {
        $crate::probe::EnumRow {
            name: stringify!($name),
            size: size_of::<$name>(),
            values: || {
                $name::VALUES.iter().map(|&(value, name)| (name, value.0 as i128, format!("{value:?}"))).collect()
            },
        }
    };
}
pub(crate) use enumeration;

/// A macro: its name and value.
pub type MacroRow = (&'static str, i128);

/// A callback: its name and the sizes of its parameters and its result.
pub struct CallbackRow {
    /// Its name.
    pub name: &'static str,
    /// Sizes of its parameters.
    pub parameters: &'static [usize],
    /// Size of its result.
    pub returns: usize,
    /// Whether the type has a NULL.
    pub nullable: bool,
}

macro_rules! callback {
    ($name:literal, $($type:tt)+) => {
        $crate::probe::CallbackRow {
            name: $name,
            parameters: <$($type)+ as $crate::probe::Signature>::PARAMETERS,
            returns: <$($type)+ as $crate::probe::Signature>::RETURNS,
            nullable: <$($type)+ as $crate::probe::Signature>::NULLABLE,
        }
    };
}
pub(crate) use callback;

/// A typedef: its name and the size of what it stands for.
pub type AliasRow = (&'static str, usize);

macro_rules! alias {
    ($name:literal, $($type:tt)+) => {
        ($name, size_of::<$($type)+>())
    };
}
pub(crate) use alias;

/// A slot that holds a callback: table, member, type; that the member has this type is checked by the compiler.
pub type SlotRow = (&'static str, &'static str, &'static str);

macro_rules! slot {
    ($table:ident, $member:ident, $type:ident) => {{
        const _: fn(&$table) -> $type = |table| table.$member;
        (stringify!($table), stringify!($member), stringify!($type))
    }};
}
pub(crate) use slot;

/// What can be said of a function pointer type.
pub trait Signature {
    /// Sizes of its parameters.
    const PARAMETERS: &'static [usize];
    /// Size of its result.
    const RETURNS: usize;
    /// Whether the type has a NULL.
    const NULLABLE: bool = false;
}

impl<F: Signature> Signature for Option<F> {
    const PARAMETERS: &'static [usize] = F::PARAMETERS;
    const RETURNS: usize = F::RETURNS;
    const NULLABLE: bool = true;
}

macro_rules! signatures {
    ($(($($parameter:ident),*))*) => {$(
        impl<Returns, $($parameter),*> Signature for winfn!(fn($($parameter),*) -> Returns) {
            const PARAMETERS: &'static [usize] = &[$(size_of::<$parameter>()),*];
            const RETURNS: usize = size_of::<Returns>();
        }
    )*};
}

signatures! {
    () (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H) (A, B, C, D, E, F, G, H, I) (A, B, C, D, E, F, G, H, I, J)
}
