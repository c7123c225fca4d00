//! Random numbers, and those on which mistakes sit.

/// SplitMix64.
pub struct Dice(u64);

impl Dice {
    /// Numbers that follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// Returns whether one of `count` equal chances came.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of `all`, of which there is one.
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        // CAST: below the length.
        &all[self.below(all.len() as u64) as usize]
    }

    /// 32 bits: small, at the ends of the range, or any up to 16 Ki.
    pub fn small(&mut self) -> u32 {
        const EDGES: [u32; 12] = [0, 1, 2, 3, 4, 8, 64, 4096, 16384, 0x8000_0000, u32::MAX, u32::MAX - 3];
        // CAST: 14 bits.
        if self.one_in(3) { self.below(0x4000) as u32 } else { *self.of(&EDGES) }
    }

    /// A number of bytes: on the edges of pages and ranges, or any.
    pub fn length(&mut self) -> u64 {
        const EDGES: [u64; 14] = [0, 4, 8, 16, 24, 64, 100, 4088, 4096, 4104, 1 << 16, 1 << 20, 1 << 32, u64::MAX - 7];
        match self.below(20) {
            0 => self.draw(),
            1 => self.below(0x1_0000),
            _ => *self.of(&EDGES),
        }
    }

    /// An address in one of `ranges` (first, bytes) or on its edges, now and then one that is in none.
    pub fn address(&mut self, ranges: &[(u64, u64)]) -> u64 {
        match self.below(24) {
            0 => self.draw(),
            1 => self.draw() & 0x0000_FFFF_FFFF_FFF8,
            2 => 0,
            3 => (1 << 48) - self.below(64) * 8,
            _ => {
                let (first, bytes) = *self.of(ranges);
                let offset = self.below(bytes + 64);
                match self.below(8) {
                    0 => first + bytes - 8,
                    1 => first,
                    2..=4 => first + (offset & !7),
                    _ => first + offset,
                }
            }
        }
    }
}
