//! Hostile images: bombs and false headers.

use std::io::Cursor;

use image::{DynamicImage, ImageFormat};

use crate::{Case, check};

/// An image of one colour.
fn picture(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    DynamicImage::new_rgb8(width, height).write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Replaces the sizes in the header of a PNG file; the checksum stays wrong.
fn sized(mut png: Vec<u8>, width: u32, height: u32) -> Vec<u8> {
    png[16..20].copy_from_slice(&width.to_be_bytes());
    png[20..24].copy_from_slice(&height.to_be_bytes());
    png
}

#[test]
fn image_is_rejected_when_it_is_larger_than_it_looks() {
    let png = |width, height| picture(width, height, ImageFormat::Png);
    let small = png(2, 2);
    let jpeg = picture(64, 64, ImageFormat::Jpeg);
    check(vec![
        // A line of pixels: resizing it to a square would need 64 times its size in between.
        Case::new("folder:{}?size=64x64", Vec::new(), "larger").and("c/a.png", png(100_000, 1)),
        Case::new("folder:{}?size=8192x8192", Vec::new(), "larger").and("c/a.png", png(1, 50_000)),
        Case::new("folder:{}", Vec::new(), "not a PNG or JPEG").and("c/a.png", png(2000, 2000)),
        Case::new("folder:{}", Vec::new(), "not a PNG or JPEG")
            .and("c/a.png", sized(small.clone(), 1 << 30, 1 << 30)),
        Case::new("folder:{}", Vec::new(), "not a PNG or JPEG").and("c/a.png", sized(small.clone(), 0, 0)),
        Case::new("folder:{}", Vec::new(), "not a PNG or JPEG").and("c/a.png", small[..40].to_vec()),
        Case::new("folder:{}", Vec::new(), "not a PNG or JPEG").and("c/a.png", Vec::new()),
        Case::new("folder:{}", Vec::new(), "not a PNG or JPEG")
            .and("c/a.jpg", jpeg[..jpeg.len() / 4].to_vec()),
        Case::new("folder:{}", Vec::new(), "not a PNG or JPEG").and("c/a.jpg", b"GIF89a".to_vec()),
        Case::new("folder:{}", Vec::new(), "has shape")
            .and("c/a.png", small.clone())
            .and("c/b.png", png(3, 2)),
    ]);
}
