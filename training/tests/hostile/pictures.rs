//! Hostile images, recordings and annotations: bombs, false headers, and values that are not finite.

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

/// The fields of a wav header.
#[derive(Clone, Copy)]
struct Wav {
    format: u16,
    channels: u16,
    rate: u32,
    bits: u16,
    /// Bytes of a frame.
    align: u16,
    /// Bytes of sound, by the header.
    bytes: u32,
}

const PLAIN: Wav = Wav { format: 1, channels: 1, rate: 8000, bits: 16, align: 2, bytes: 800 };

impl Wav {
    fn file(self, sound: &[u8]) -> Vec<u8> {
        let Self { format, channels, rate, bits, align, bytes } = self;
        let mut file = b"RIFF\xff\xff\xff\x7fWAVEfmt \x10\0\0\0".to_vec();
        file.extend(format.to_le_bytes());
        file.extend(channels.to_le_bytes());
        file.extend(rate.to_le_bytes());
        file.extend(rate.wrapping_mul(align.into()).to_le_bytes());
        file.extend(align.to_le_bytes());
        file.extend(bits.to_le_bytes());
        file.extend(b"data");
        file.extend(bytes.to_le_bytes());
        file.extend(sound);
        file
    }
}

#[test]
fn recording_is_rejected_when_its_header_lies() {
    let case = |wav: Wav| {
        let file = wav.file(&[0; 800]);
        Case::new("wav:{}", Vec::new(), "a wav recording").and("1_a.wav", file)
    };
    let float = Wav { format: 3, bits: 32, align: 4, ..PLAIN };
    check(vec![
        case(Wav { bits: 0, ..PLAIN }),
        case(Wav { bits: 0, align: 0, ..PLAIN }),
        case(Wav { bits: 64, align: 8, ..PLAIN }),
        case(Wav { bits: 65535, align: 65535, ..PLAIN }),
        case(Wav { bits: 16, align: 0, ..PLAIN }),
        case(Wav { channels: 0, ..PLAIN }),
        case(Wav { channels: 65535, ..PLAIN }),
        case(Wav { rate: 0, ..PLAIN }),
        case(Wav { rate: u32::MAX, ..PLAIN }),
        case(Wav { bytes: u32::MAX - 1, ..PLAIN }),
        case(Wav { bits: 8, align: 1, ..float }),
        case(Wav { bits: 64, align: 8, ..float }),
        case(Wav { format: 17, ..PLAIN }),
        Case::new("wav:{}", Vec::new(), "a wav recording").and("1_a.wav", PLAIN.file(&[])[..30].to_vec()),
        Case::new("wav:{}", Vec::new(), "a wav recording").and("1_a.wav", b"RIFF".to_vec()),
        Case::new("wav:{}", Vec::new(), "not a finite number")
            .and("1_a.wav", float.file(&f32::INFINITY.to_le_bytes().repeat(200))),
    ]);
}

#[test]
fn annotation_is_rejected_when_it_has_no_valid_box() {
    let case = |xml: String, words| {
        Case::new("voc:{}", Vec::new(), words)
            .and("ImageSets/Main/train.txt", b"a\n".to_vec())
            .and("Annotations/a.xml", xml.into_bytes())
    };
    let boxed = |corners: &str| format!("<a><object><bndbox>{corners}</bndbox></object></a>");
    let laughs = "<!DOCTYPE a [<!ENTITY b \"ha\"><!ENTITY c \"&b;&b;&b;&b;\">]><a>&c;</a>".to_owned();
    check(vec![
        case(laughs, "DTD"),
        case("<a>".repeat(100_000), "line 1"),
        case("\0".repeat(1000), "line 1"),
        case(String::new(), "line 1"),
        case(boxed("<xmin>NaN</xmin>"), "is not a number"),
        case(boxed("<xmin>1</xmin><ymin>1</ymin><xmax>1e99</xmax><ymax>2</ymax>"), "not a number"),
        case(boxed("<xmin>3</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax>"), "no area"),
        case("<a/>".into(), "exactly one object"),
        Case::new("voc:{}", Vec::new(), "exactly one object")
            .and("ImageSets/Main/train.txt", b" \n\n".to_vec()),
    ]);
}
