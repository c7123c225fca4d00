//! Pictures in and out.

use anyhow::{Context, Result, bail};
use std::fs;
use std::io::BufWriter;
use std::path::Path;

/// The picture that ships.
const COFFEE: &[u8] = include_bytes!("../../../assets/coffee.png");

/// Most pixels on a side.
const LARGEST: u32 = 8192;

/// RGBA, 8 bits a channel, rows without gaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Picture {
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// `width * height * 4` bytes.
    pub pixels: Vec<u8>,
}

impl Picture {
    /// The picture that ships.
    ///
    /// # Errors
    /// None in a build that is whole.
    pub fn coffee() -> Result<Self> {
        Self::decode(COFFEE)
    }

    /// Reads a PNG file.
    ///
    /// # Errors
    /// When there is no such file, it is no PNG, or it is larger than 8192 pixels on a side.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read the picture {}", path.display()))?;
        Self::decode(&bytes).with_context(|| format!("cannot use the picture {}", path.display()))
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
        decoder.set_transformations(png::Transformations::normalize_to_color8() | png::Transformations::ALPHA);
        let mut reader = decoder.read_info().context("it is not a PNG file")?;
        let (width, height) = reader.info().size();
        if width > LARGEST || height > LARGEST {
            bail!("it is {width} x {height}; at most {LARGEST} x {LARGEST} fit the demo");
        }
        let size = reader.output_buffer_size().context("it is too large")?;
        let mut raw = vec![0; size];
        let frame = reader.next_frame(&mut raw).context("its image data is damaged")?;
        raw.truncate(frame.buffer_size());
        let pixels = match frame.color_type {
            png::ColorType::Rgba => raw,
            png::ColorType::GrayscaleAlpha => raw.chunks_exact(2).flat_map(|p| [p[0], p[0], p[0], p[1]]).collect(),
            other => bail!("its color type {other:?} is not supported"),
        };
        Ok(Self { width, height, pixels })
    }

    /// The picture as a PNG file's bytes.
    ///
    /// # Errors
    /// None that a picture of this type can cause.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut encoder = png::Encoder::new(BufWriter::new(&mut out), self.width, self.height);
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        writer.finish()?;
        Ok(out)
    }

    /// Bytes of a row.
    pub fn pitch(&self) -> u32 {
        self.width * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_that_ships_is_a_photograph() {
        let coffee = Picture::coffee().unwrap();
        assert_eq!((coffee.width, coffee.height), (600, 400));
        let distinct: std::collections::HashSet<_> = coffee.pixels.chunks_exact(4).collect();
        assert!(distinct.len() > 10_000);
        assert_eq!(Picture::decode(&coffee.encode().unwrap()).unwrap(), coffee);
    }

    #[test]
    fn what_is_no_png_is_refused_in_words() {
        let error = Picture::load(Path::new("/nonexistent.png")).unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot read the picture /nonexistent.png"));
        assert!(format!("{:#}", Picture::decode(b"GIF89a").unwrap_err()).contains("not a PNG file"));
    }
}
