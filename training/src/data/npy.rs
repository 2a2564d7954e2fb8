//! Arrays that numpy saved: a magic, a version, a header that is a Python dictionary, elements.

use std::path::Path;

use super::Error;
use super::file::{self, Limit};
use crate::Array;

pub(super) fn read(path: &Path, limit: Limit) -> Result<Array<f64>, Error> {
    parse(path, &file::read(path, limit)?)
}

/// Reads a file's content; `path` is for messages.
pub(super) fn parse(path: &Path, content: &[u8]) -> Result<Array<f64>, Error> {
    let format = |detail: String| Error::Format { path: path.into(), expected: "an npy file", detail };
    let (header, data) = split(content).ok_or_else(|| format("its header is cut short".into()))?;
    let header = std::str::from_utf8(header).map_err(|_| format("its header is no text".into()))?;
    let descr = quoted(header, "descr").ok_or_else(|| format("its header names no element type".into()))?;
    if after(header, "fortran_order").is_none_or(|rest| !rest.starts_with("False")) {
        return Err(format("it is stored column by column: save numpy.ascontiguousarray(array)".into()));
    }
    let shape = shape(header).ok_or_else(|| format("its header gives no shape".into()))?;
    let element = Element::named(descr).ok_or_else(|| {
        format(format!("elements of type '{descr}', floats, integers and bytes are supported"))
    })?;
    let count = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size as u64));
    let expected = count.and_then(|count| count.checked_mul(element.bytes as u64));
    let expected = expected.ok_or_else(|| format(format!("its sizes {shape:?} overflow")))?;
    if expected != data.len() as u64 {
        return Err(Error::Length { path: path.into(), expected, actual: data.len() as u64 });
    }
    let values = data.chunks_exact(element.bytes).map(element.read).collect();
    Ok(Array::new(shape, values).expect("the length was compared"))
}

/// An element type: how many bytes it takes and how they are read.
struct Element {
    bytes: usize,
    read: fn(&[u8]) -> f64,
}

impl Element {
    fn named(descr: &str) -> Option<Self> {
        macro_rules! element {
            ($kind:ty) => {
                Self {
                    bytes: size_of::<$kind>(),
                    read: |bytes| <$kind>::from_le_bytes(bytes.try_into().expect("chunks are exact")) as f64,
                }
            };
        }
        Some(match descr {
            "<f4" => element!(f32),
            "<f8" => element!(f64),
            "|u1" | "|b1" => element!(u8),
            "|i1" => element!(i8),
            "<i2" => element!(i16),
            "<i4" => element!(i32),
            "<i8" => element!(i64),
            "<u2" => element!(u16),
            "<u4" => element!(u32),
            "<u8" => element!(u64),
            _ => return None,
        })
    }
}

/// The header's text and what follows it. Its length takes two bytes in version 1 and four since.
fn split(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = content.strip_prefix(b"\x93NUMPY")?;
    let (version, rest) = rest.split_first_chunk::<2>()?;
    let (length, rest) = match version[0] {
        1 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        _ => {
            let (length, rest) = rest.split_first_chunk::<4>()?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
    };
    rest.split_at_checked(length)
}

/// What stands behind `'key':` in the header.
fn after<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{key}':"))?;
    Some(rest.trim_start())
}

fn quoted<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    after(header, key)?.strip_prefix('\'')?.split('\'').next()
}

fn shape(header: &str) -> Option<Vec<usize>> {
    let (list, _) = after(header, "shape")?.strip_prefix('(')?.split_once(')')?;
    list.split(',').map(str::trim).filter(|size| !size.is_empty()).map(|size| size.parse().ok()).collect()
}
