//! Converts the protocol's tensors to tract's and back.

use bytes::Bytes;
use parm_protocol::{DataType, Tensor};
use tract_onnx::prelude::{DatumType, IntoTValue, TValue, tensor1};
use tract_onnx::tract_hir::internal::Tensor as Native;

use super::failed;
use crate::Error;
use crate::engine::strings;

/// Copies a tensor into tract's aligned memory.
pub(super) fn to_native(tensor: &Tensor) -> Result<TValue, Error> {
    let datatype = native_type(tensor.datatype())?;
    if datatype == DatumType::String {
        let strings = strings::unpack(tensor)?;
        return Ok(tensor1(&strings).into_shape(tensor.shape()).map_err(failed)?.into_tvalue());
    }
    let mut native = Native::zero_dt(datatype, tensor.shape()).map_err(failed)?;
    if tensor.datatype() == DataType::Bool {
        // Rust's booleans must be 0 or 1; clients may send any byte.
        let truths = native.as_bytes_mut().iter_mut().zip(tensor.data());
        truths.for_each(|(truth, byte)| *truth = u8::from(*byte != 0));
    } else {
        native.as_bytes_mut().copy_from_slice(tensor.data());
    }
    Ok(native.into_tvalue())
}

/// Copies a tensor out, in the datatype that the model declares.
pub(super) fn from_native(native: &Native, declared: DataType) -> Result<Tensor, Error> {
    let wanted = native_type(declared)?;
    // Shapes computed in the graph are symbolic dimensions in tract; quantised values have a scale.
    let native = native.cast_to_dt(wanted).map_err(failed)?;
    let data = if wanted == DatumType::String {
        let view = native.try_as_plain_ram().map_err(failed)?;
        strings::pack(view.as_slice::<String>().map_err(failed)?)
    } else {
        Bytes::copy_from_slice(native.as_bytes())
    };
    Ok(Tensor::new(declared, native.shape(), data)?)
}

fn native_type(datatype: DataType) -> Result<DatumType, Error> {
    Ok(match datatype {
        DataType::Bool => DatumType::Bool,
        DataType::Uint8 => DatumType::U8,
        DataType::Uint16 => DatumType::U16,
        DataType::Uint32 => DatumType::U32,
        DataType::Uint64 => DatumType::U64,
        DataType::Int8 => DatumType::I8,
        DataType::Int16 => DatumType::I16,
        DataType::Int32 => DatumType::I32,
        DataType::Int64 => DatumType::I64,
        DataType::Fp16 => DatumType::F16,
        DataType::Fp32 => DatumType::F32,
        DataType::Fp64 => DatumType::F64,
        DataType::Bytes => DatumType::String,
        DataType::Bf16 => {
            return Err(Error::Run { message: "tract has no BF16: use engine 'ort'".into() });
        }
    })
}
