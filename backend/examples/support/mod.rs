//! Tensors in files of ONNX's `TensorProto`, the form of ONNX's own test data.

use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::{BufMut, Bytes, BytesMut};
use parm_protocol::{DataType, Shape, Tensor};
use prost::Message;
use tract_onnx::pb::TensorProto;
use tract_onnx::pb::tensor_proto::DataType as Stored;

/// ONNX's element types and the protocol's.
pub(crate) const DATATYPES: [(Stored, DataType); 14] = [
    (Stored::Bool, DataType::Bool),
    (Stored::Uint8, DataType::Uint8),
    (Stored::Uint16, DataType::Uint16),
    (Stored::Uint32, DataType::Uint32),
    (Stored::Uint64, DataType::Uint64),
    (Stored::Int8, DataType::Int8),
    (Stored::Int16, DataType::Int16),
    (Stored::Int32, DataType::Int32),
    (Stored::Int64, DataType::Int64),
    (Stored::Float16, DataType::Fp16),
    (Stored::Bfloat16, DataType::Bf16),
    (Stored::Float, DataType::Fp32),
    (Stored::Double, DataType::Fp64),
    (Stored::String, DataType::Bytes),
];

/// Reads a tensor.
pub(crate) fn read(path: &Path) -> Result<Tensor> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let proto = TensorProto::decode(&*bytes).with_context(|| format!("decoding {}", path.display()))?;
    let known = DATATYPES.into_iter().find(|(stored, _)| *stored as i32 == proto.data_type);
    let Some((_, datatype)) = known else {
        bail!("{} has elements of type {}, which the protocol lacks", path.display(), proto.data_type);
    };
    let shape: Shape = proto.dims.iter().map(|&dim| dim as usize).collect();
    let data =
        if proto.raw_data.is_empty() { typed(&proto, datatype) } else { proto.raw_data.clone().into() };
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
