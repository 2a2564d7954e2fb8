//! Converts the protocol's tensors to ONNX Runtime's and back.

use std::fmt::Debug;

use bytemuck::Pod;
use bytes::Bytes;
use half::{bf16, f16};
use ort::session::SessionInputValue;
use ort::value::{DynValue, PrimitiveTensorElementType, TensorElementType, TensorRef};
use parm_protocol::{DataType, Shape, Tensor};

use super::failed;
use crate::Error;
use crate::engine::strings;

/// Aligned memory for the numbers of an input.
pub(super) type Scratch = Vec<u64>;

/// Calls the function for a datatype: for booleans, for strings, or that for numbers with the type of an element.
macro_rules! by_type {
    ($datatype:expr, $truths:expr, $texts:expr, $numbers:ident($($argument:expr),*)) => {
        match $datatype {
            DataType::Bool => $truths,
            DataType::Bytes => $texts,
            DataType::Uint8 => $numbers::<u8>($($argument),*),
            DataType::Uint16 => $numbers::<u16>($($argument),*),
            DataType::Uint32 => $numbers::<u32>($($argument),*),
            DataType::Uint64 => $numbers::<u64>($($argument),*),
            DataType::Int8 => $numbers::<i8>($($argument),*),
            DataType::Int16 => $numbers::<i16>($($argument),*),
            DataType::Int32 => $numbers::<i32>($($argument),*),
            DataType::Int64 => $numbers::<i64>($($argument),*),
            DataType::Fp16 => $numbers::<f16>($($argument),*),
            DataType::Bf16 => $numbers::<bf16>($($argument),*),
            DataType::Fp32 => $numbers::<f32>($($argument),*),
            DataType::Fp64 => $numbers::<f64>($($argument),*),
        }
    };
}

/// A view of a tensor's own memory if it is aligned, otherwise of a copy in `scratch`.
pub(super) fn to_value<'a>(
    tensor: &'a Tensor,
    scratch: &'a mut Scratch,
) -> Result<SessionInputValue<'a>, Error> {
    by_type!(tensor.datatype(), truths(tensor), texts(tensor), numbers(tensor, scratch))
}

/// Copies a tensor out.
pub(super) fn from_value(value: &DynValue, datatype: DataType) -> Result<Tensor, Error> {
    let (shape, data) = by_type!(datatype, extract_truths(value), extract_texts(value), extract(value))?;
    let shape: Shape = shape.iter().map(|&dim| usize::try_from(dim).unwrap_or(0)).collect();
    Ok(Tensor::new(datatype, shape, data)?)
}

/// The protocol's name of an element type, if it has one.
pub(super) fn datatype(native: TensorElementType) -> Option<DataType> {
    Some(match native {
        TensorElementType::Bool => DataType::Bool,
        TensorElementType::String => DataType::Bytes,
        TensorElementType::Uint8 => DataType::Uint8,
        TensorElementType::Uint16 => DataType::Uint16,
        TensorElementType::Uint32 => DataType::Uint32,
        TensorElementType::Uint64 => DataType::Uint64,
        TensorElementType::Int8 => DataType::Int8,
        TensorElementType::Int16 => DataType::Int16,
        TensorElementType::Int32 => DataType::Int32,
        TensorElementType::Int64 => DataType::Int64,
        TensorElementType::Float16 => DataType::Fp16,
        TensorElementType::Bfloat16 => DataType::Bf16,
        TensorElementType::Float32 => DataType::Fp32,
        TensorElementType::Float64 => DataType::Fp64,
        _ => return None,
    })
}

fn numbers<'a, T>(tensor: &'a Tensor, scratch: &'a mut Scratch) -> Result<SessionInputValue<'a>, Error>
where
    T: Pod + PrimitiveTensorElementType + Debug,
{
    let values = match bytemuck::try_cast_slice::<u8, T>(tensor.data()) {
        Ok(values) => values,
        Err(_) => {
            let bytes = tensor.data();
            scratch.resize(bytes.len().div_ceil(size_of::<u64>()), 0);
            let copy = &mut bytemuck::cast_slice_mut(scratch)[..bytes.len()];
            copy.copy_from_slice(bytes);
            bytemuck::cast_slice(copy)
        }
    };
    Ok(TensorRef::from_array_view((dims(tensor), values)).map_err(failed)?.into())
}

fn truths(tensor: &Tensor) -> Result<SessionInputValue<'_>, Error> {
    let values: Vec<bool> = tensor.data().iter().map(|&byte| byte != 0).collect();
    Ok(ort::value::Tensor::from_array((dims(tensor), values)).map_err(failed)?.into())
}

fn texts(tensor: &Tensor) -> Result<SessionInputValue<'_>, Error> {
    let texts = strings::unpack(tensor)?;
    // The library's interface takes strings that end with it.
    if let Some(at) = texts.iter().position(|text| text.contains('\0')) {
        let message = format!("string {at} has the character U+0000, which ONNX Runtime does not take");
        return Err(Error::Input { message });
    }
    let value = ort::value::Tensor::from_string_array((dims(tensor), texts.as_slice()));
    Ok(value.map_err(failed)?.into())
}

fn extract<T>(value: &DynValue) -> Result<(&ort::value::Shape, Bytes), Error>
where
    T: Pod + PrimitiveTensorElementType,
{
    let (shape, values) = value.try_extract_tensor::<T>().map_err(failed)?;
    Ok((shape, Bytes::copy_from_slice(bytemuck::cast_slice(values))))
}

fn extract_truths(value: &DynValue) -> Result<(&ort::value::Shape, Bytes), Error> {
    let (shape, truths) = value.try_extract_tensor::<bool>().map_err(failed)?;
    Ok((shape, truths.iter().map(|&truth| u8::from(truth)).collect()))
}

fn extract_texts(value: &DynValue) -> Result<(&ort::value::Shape, Bytes), Error> {
    let (shape, texts) = value.try_extract_strings().map_err(failed)?;
    Ok((shape, strings::pack(&texts)))
}

fn dims(tensor: &Tensor) -> Vec<i64> {
    tensor.shape().iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect()
}
