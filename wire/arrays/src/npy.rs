//! Arrays of numpy: a magic, a version, a header that is a Python dictionary, elements.

use std::ops::Range;

use bytes::Bytes;
use parm_protocol::{DataType, Tensor};

use crate::{Problem, malformed};

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

pub(crate) fn parse(content: Vec<u8>) -> Result<Tensor, Problem> {
    let place = header(&content).ok_or_else(|| malformed("its header is cut short"))?;
    let header =
        std::str::from_utf8(&content[place.clone()]).map_err(|_| malformed("its header is not text"))?;
    let descr = quoted(header, "descr").ok_or_else(|| malformed("its header names no element type"))?;
    let datatype = datatype(descr).ok_or_else(|| {
        malformed(format!(
            "elements of type '{descr}' are not supported: save little-endian numbers or booleans"
        ))
    })?;
    if after(header, "fortran_order").is_none_or(|rest| !rest.starts_with("False")) {
        return Err(malformed("it is stored column by column: save numpy.ascontiguousarray(array)"));
    }
    let shape = shape(header).ok_or_else(|| malformed("its header gives no shape"))?;
    crate::tensor(datatype, shape, Bytes::from(content).slice(place.end..))
}

/// The file of a tensor, in version 1; `None` for elements without a name in the format.
pub(crate) fn write(tensor: &Tensor) -> Option<Vec<u8>> {
    let (descr, _) = NAMES.iter().find(|(_, datatype)| *datatype == tensor.datatype())?;
    // A tuple of one size has a trailing comma in Python.
    let sizes: String = tensor.shape().iter().map(|size| format!("{size},")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    // The elements begin at a multiple of 64 bytes, so that they can be mapped into memory.
    let begun = MAGIC.len() + 4;
    let length = (begun + header.len() + 1).next_multiple_of(64) - begun;
    let mut file = [MAGIC, &[1, 0], &u16::try_from(length).ok()?.to_le_bytes()].concat();
    file.extend(format!("{header:<width$}\n", width = length - 1).as_bytes());
    file.extend_from_slice(tensor.data());
    Some(file)
}

/// The range of the header's text. Its length takes two bytes in version 1 and four in later ones.
fn header(content: &[u8]) -> Option<Range<usize>> {
    content.strip_prefix(MAGIC)?;
    let at = MAGIC.len() + 2;
    let (start, length) = match content.get(MAGIC.len())? {
        1 => (at + 2, u16::from_le_bytes(content.get(at..at + 2)?.try_into().ok()?).into()),
        _ => (at + 4, u32::from_le_bytes(content.get(at..at + 4)?.try_into().ok()?) as usize),
    };
    let end = start.checked_add(length)?;
    (end <= content.len()).then_some(start..end)
}

const NAMES: [(&str, DataType); 12] = [
    ("|b1", DataType::Bool),
    ("|u1", DataType::Uint8),
    ("|i1", DataType::Int8),
    ("<u2", DataType::Uint16),
    ("<u4", DataType::Uint32),
    ("<u8", DataType::Uint64),
    ("<i2", DataType::Int16),
    ("<i4", DataType::Int32),
    ("<i8", DataType::Int64),
    ("<f2", DataType::Fp16),
    ("<f4", DataType::Fp32),
    ("<f8", DataType::Fp64),
];

fn datatype(descr: &str) -> Option<DataType> {
    NAMES.iter().find(|(name, _)| *name == descr).map(|(_, datatype)| *datatype)
}

/// The text after `'key':` in the header.
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
