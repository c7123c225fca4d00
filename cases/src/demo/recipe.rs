//! What the demo makes of a picture, and the same thing computed plainly: the yardstick for what the GPU returns.
//!
//! Process A embosses the whole picture, tile by tile. Process B lays the tiles out like a chessboard, one from the
//! original and one embossed, and draws lines between them.

use super::Picture;

/// Pixels on a tile's side.
pub const TILE: u32 = 100;

/// Pixels of a line between tiles.
pub const LINE: u32 = 2;

/// A line's color: opaque white.
pub const LINE_COLOR: u32 = 0xFFFF_FFFF;

/// Row-major coefficients of the filter.
pub const EMBOSS: [i16; 9] = [-2, -1, 0, -1, 1, 1, 0, 1, 2];

/// A rectangle of the picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Whether the embossed picture shows here.
    pub embossed: bool,
}

/// The tiles, row by row.
pub fn tiles(width: u32, height: u32) -> Vec<Tile> {
    let mut tiles = Vec::new();
    for (row, y) in (0..height).step_by(TILE as usize).enumerate() {
        for (column, x) in (0..width).step_by(TILE as usize).enumerate() {
            let embossed = (row + column) % 2 == 1;
            tiles.push(Tile { x, y, width: TILE.min(width - x), height: TILE.min(height - y), embossed });
        }
    }
    tiles
}

/// The lines as runs of pixels: first pixel and count.
pub fn lines(width: u32, height: u32) -> Vec<(u32, u32)> {
    let mut runs = Vec::new();
    for y in (TILE..height).step_by(TILE as usize) {
        for row in y..(y + LINE).min(height) {
            runs.push((row * width, width));
        }
    }
    for x in (TILE..width).step_by(TILE as usize) {
        for row in 0..height {
            runs.push((row * width + x, LINE.min(width - x)));
        }
    }
    runs
}

/// The picture that the GPU must return.
pub fn expected(photo: &Picture) -> Picture {
    let mut out = photo.clone();
    for tile in tiles(photo.width, photo.height).iter().filter(|tile| tile.embossed) {
        for y in tile.y..tile.y + tile.height {
            for x in tile.x..tile.x + tile.width {
                let at = ((y * photo.width + x) * 4) as usize;
                for channel in 0..3 {
                    out.pixels[at + channel] = embossed(photo, x, y, channel);
                }
            }
        }
    }
    for (first, count) in lines(photo.width, photo.height) {
        for pixel in first..first + count {
            out.pixels[pixel as usize * 4..][..4].copy_from_slice(&LINE_COLOR.to_le_bytes());
        }
    }
    out
}

fn embossed(photo: &Picture, x: u32, y: u32, channel: usize) -> u8 {
    let mut sum = 0;
    for (i, coefficient) in EMBOSS.iter().enumerate() {
        // Neighbours beyond the edge are the edge's own pixels.
        let nx = (x + i as u32 % 3).saturating_sub(1).min(photo.width - 1);
        let ny = (y + i as u32 / 3).saturating_sub(1).min(photo.height - 1);
        let value = photo.pixels[((ny * photo.width + nx) * 4) as usize + channel];
        sum += i32::from(*coefficient) * i32::from(value);
    }
    // CAST: clamped.
    sum.clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_pixel_once() {
        for (width, height) in [(600, 400), (1, 1), (101, 99), (250, 333)] {
            let mut seen = vec![0; (width * height) as usize];
            for tile in tiles(width, height) {
                for y in tile.y..tile.y + tile.height {
                    for x in tile.x..tile.x + tile.width {
                        seen[(y * width + x) as usize] += 1;
                    }
                }
            }
            assert!(seen.iter().all(|n| *n == 1), "{width} x {height}");
        }
    }

    #[test]
    fn lines_stay_inside() {
        for (width, height) in [(600, 400), (1, 1), (101, 101), (201, 99)] {
            for (first, count) in lines(width, height) {
                assert!(first + count <= width * height, "{width} x {height}");
                assert!(first % width + count <= width, "{width} x {height}: a run of a line goes round the edge");
            }
        }
    }

    #[test]
    fn a_flat_picture_stays_flat_under_the_filter() {
        let photo = Picture { width: 150, height: 50, pixels: [90, 90, 90, 255].repeat(150 * 50) };
        // The coefficients add up to 1.
        assert_eq!(expected(&photo).pixels[140 * 4..141 * 4], [90, 90, 90, 255]);
    }
}
