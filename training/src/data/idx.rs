//! The idx format of MNIST and its family: two zero bytes, the element type, the rank, big-endian sizes, elements.

use std::path::Path;

use super::Error;
use super::file::{self, Limit};
use crate::Array;

const BYTES: u8 = 8;

pub(super) fn read(path: &Path, limit: Limit) -> Result<Array<u8>, Error> {
    let content = file::read(path, limit)?;
    let format = |detail: String| Error::Format { path: path.into(), expected: "an idx file", detail };
    let Some(([0, 0, kind, rank], rest)) = content.split_first_chunk::<4>() else {
        return Err(format("it does not begin with two zero bytes".into()));
    };
    if *kind != BYTES {
        return Err(format(format!("elements of type {kind:#04x}, bytes ({BYTES:#04x}) are supported")));
    }
    let header = 4 * usize::from(*rank);
    let Some((sizes, data)) = rest.split_at_checked(header) else {
        return Err(format(format!("it ends within the sizes of its {rank} dimensions")));
    };
    let sizes = sizes.chunks_exact(4).map(|size| u32::from_be_bytes([size[0], size[1], size[2], size[3]]));
    let shape: Vec<usize> = sizes.map(|size| size as usize).collect();
    let expected = shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size as u64));
    let expected = expected.ok_or_else(|| format(format!("its sizes {shape:?} overflow")))?;
    if expected != data.len() as u64 {
        return Err(Error::Length { path: path.into(), expected, actual: data.len() as u64 });
    }
    Ok(Array::new(shape, data.to_vec()).expect("the length was compared"))
}
