//! Images as rows of pixels.

use std::io::Cursor;
use std::path::Path;

use image::{DynamicImage, ImageReader, Limits, imageops::FilterType};

use super::Unusable;
use super::file::{self, Limit};
use super::options::Options;

/// The size and colours that every image is converted to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Form {
    /// Height and width; unchanged if `None`.
    pub(super) size: Option<(usize, usize)>,
    /// One channel of brightness instead of three of colour.
    pub(super) gray: bool,
}

impl Form {
    pub(super) fn read(options: &Options) -> Result<Self, Unusable> {
        let size = options.pair("size", "x")?;
        if size.is_some_and(|(height, width)| !(1..=8192).contains(&height) || !(1..=8192).contains(&width)) {
            let message = "height and width are 1 to 8192".into();
            return Err(Unusable::Setting { name: "size".into(), message });
        }
        Ok(Self { size, gray: options.flag("gray")? })
    }

    pub(super) fn channels(self) -> usize {
        if self.gray { 1 } else { 3 }
    }
}

/// One image: its dimensions as a row, and its values from 0 to 1 channel after channel.
pub(super) struct Image {
    pub(super) dims: [usize; 3],
    pub(super) values: Vec<f32>,
}

pub(super) fn read(path: &Path, form: Form, limit: Limit) -> Result<Image, Unusable> {
    let content = file::read(path, limit)?;
    let format =
        |detail: String| Unusable::Format { path: path.into(), expected: "a PNG or JPEG image", detail };
    let reader = ImageReader::new(Cursor::new(content)).with_guessed_format();
    let mut reader = reader.map_err(|error| format(error.to_string()))?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(limit.0);
    reader.limits(limits);
    let image = reader.decode().map_err(|error| format(error.to_string()))?;
    let original = (image.height() as usize, image.width() as usize);
    let size = form.size.filter(|size| *size != original);
    if let Some((height, width)) = size {
        // The intermediate picture has the old width and the new height, with four floats per pixel.
        let between = 16_u64.saturating_mul(original.1 as u64).saturating_mul(height as u64);
        let after = 16_u64.saturating_mul(width as u64).saturating_mul(height as u64);
        if between.max(after) > limit.0 {
            return Err(Unusable::Resize { path: path.into(), height, width, limit: limit.0 });
        }
    }
    let image = match size {
        // A triangle filter as wide as the replaced pixels: a plain average for a smaller image.
        Some((height, width)) => image.resize_exact(width as u32, height as u32, FilterType::Triangle),
        None => image,
    };
    let dims = [form.channels(), image.height() as usize, image.width() as usize];
    Ok(Image { dims, values: planes(&image, form) })
}

/// Reorders interleaved colours to channels.
fn planes(image: &DynamicImage, form: Form) -> Vec<f32> {
    let channels = form.channels();
    let bytes = if form.gray { image.to_luma8().into_raw() } else { image.to_rgb8().into_raw() };
    let value = |byte: &u8| f32::from(*byte) / 255.0;
    (0..channels).flat_map(|channel| bytes.iter().skip(channel).step_by(channels).map(value)).collect()
}
