//! Tensors in files of ONNX's `TensorProto`, the form of ONNX's own test data.

use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::{BufMut, Bytes, BytesMut};
use parm_parity_models::onnx;
use parm_parity_models::onnx::proto::TensorProto;
use parm_protocol::{DataType, Shape, Tensor};
use prost::Message;

/// The protocol's type of an element type of ONNX.
pub(crate) fn datatype(stored: i32) -> Option<DataType> {
    onnx::DataType::try_from(stored).ok()?.to_protocol()
}

/// Reads a tensor.
pub(crate) fn read(path: &Path) -> Result<Tensor> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let proto = TensorProto::decode(&*bytes).with_context(|| format!("decoding {}", path.display()))?;
    let Some(datatype) = datatype(proto.data_type) else {
        bail!("{} has elements of type {}, which the protocol lacks", path.display(), proto.data_type);
    };
    let shape: Shape = proto.dims.iter().map(|&dim| dim as usize).collect();
    let raw = proto.raw_data.clone().filter(|raw| !raw.is_empty());
    let data = raw.unwrap_or_else(|| typed(&proto, datatype));
    Ok(Tensor::new(datatype, shape, data)?)
}

/// The elements of the typed fields; small types share `int32_data`.
fn typed(proto: &TensorProto, datatype: DataType) -> Bytes {
    let mut data = BytesMut::new();
    match datatype {
        DataType::Bytes => proto.string_data.iter().for_each(|text| {
            data.put_u32_le(text.len() as u32);
            data.put_slice(text);
        }),
        DataType::Fp32 => proto.float_data.iter().for_each(|&value| data.put_f32_le(value)),
        DataType::Fp64 => proto.double_data.iter().for_each(|&value| data.put_f64_le(value)),
        DataType::Int64 => proto.int64_data.iter().for_each(|&value| data.put_i64_le(value)),
        DataType::Uint32 => proto.uint64_data.iter().for_each(|&value| data.put_u32_le(value as u32)),
        DataType::Uint64 => proto.uint64_data.iter().for_each(|&value| data.put_u64_le(value)),
        small => {
            let size = small.size().unwrap_or(4);
            proto.int32_data.iter().for_each(|&value| data.put_slice(&value.to_le_bytes()[..size]));
        }
    }
    data.freeze()
}
