//! The idx format of MNIST: two zero bytes, the element type, the rank, big-endian sizes, elements.

use bytes::Bytes;
use parm_protocol::{DataType, Tensor};

use crate::{Problem, malformed};

pub(crate) fn parse(content: Vec<u8>) -> Result<Tensor, Problem> {
    let Some(([0, 0, kind, rank], rest)) = content.split_first_chunk::<4>() else {
        return Err(malformed("it does not begin with two zero bytes, nor like an npy file"));
    };
    let datatype = match kind {
        0x08 => DataType::Uint8,
        0x09 => DataType::Int8,
        0x0B => DataType::Int16,
        0x0C => DataType::Int32,
        0x0D => DataType::Fp32,
        0x0E => DataType::Fp64,
        _ => return Err(malformed(format!("unknown element type {kind:#04x}"))),
    };
    let header = 4 * usize::from(*rank);
    let sizes = rest
        .get(..header)
        .ok_or_else(|| malformed(format!("it ends within the sizes of its {rank} dimensions")))?;
    let sizes = sizes.chunks_exact(4).map(|size| u32::from_be_bytes([size[0], size[1], size[2], size[3]]));
    let shape: Vec<usize> = sizes.map(|size| size as usize).collect();
    let mut data = content;
    data.drain(..4 + header);
    let size = datatype.size().unwrap_or(1);
    if size > 1 {
        data.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    crate::tensor(datatype, shape, Bytes::from(data))
}
