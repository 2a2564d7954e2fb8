//! A constant of a graph: an initialiser, or the value of a `Constant` node.
//!
//! ONNX stores numbers in one of seven fields, raw or typed, in the file or in an external one. Here they are always
//! raw little-endian bytes, which share the file's buffer if they were raw there.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use half::{bf16, f16};

use super::Defect;
use super::model::External;
pub use super::proto::DataType;
use super::proto::{DataLocation, TensorProto};

/// A constant. Its bytes match its element type and dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    name: String,
    datatype: DataType,
    dims: Vec<usize>,
    data: Bytes,
}

impl Tensor {
    /// Wraps raw little-endian bytes, whose number must match the type and dimensions. A string element is a u32
    /// little-endian length and its bytes.
    pub fn new(name: &str, datatype: DataType, dims: &[usize], data: Bytes) -> Result<Self, Defect> {
        let tensor = Self { name: name.into(), datatype, dims: dims.into(), data };
        tensor.check()?;
        Ok(tensor)
    }

    /// Creates a tensor of 32-bit floats.
    pub fn from_f32(name: &str, dims: &[usize], values: &[f32]) -> Result<Self, Defect> {
        let mut data = BytesMut::with_capacity(values.len() * 4);
        values.iter().for_each(|value| data.put_f32_le(*value));
        Self::new(name, DataType::Float, dims, data.freeze())
    }

    /// Creates a tensor of 64-bit integers, the type of shapes and axes.
    pub fn from_i64(name: &str, dims: &[usize], values: &[i64]) -> Result<Self, Defect> {
        let mut data = BytesMut::with_capacity(values.len() * 8);
        values.iter().for_each(|value| data.put_i64_le(*value));
        Self::new(name, DataType::Int64, dims, data.freeze())
    }

    pub(super) fn from_proto(tensor: &TensorProto, external: &External) -> Result<Self, Defect> {
        let name = &tensor.name;
        let datatype = DataType::try_from(tensor.data_type).unwrap_or(DataType::Undefined);
        if datatype == DataType::Undefined {
            let code = tensor.data_type;
            let problem = format!("has unknown element type {code}: export the model again");
            return Err(Defect::of_tensor(name, &problem));
        }
        if tensor.segment.is_some() {
            let problem = "is stored in segments, which no exporter writes: export the model again";
            return Err(Defect::of_tensor(name, problem));
        }
        let dim = |&dim: &i64| {
            let problem = || format!("has negative dimension {dim}: export the model again");
            usize::try_from(dim).map_err(|_| Defect::of_tensor(name, &problem()))
        };
        let dims: Vec<usize> = tensor.dims.iter().map(dim).collect::<Result<_, _>>()?;
        let data = match (&tensor.raw_data, tensor.data_location()) {
            (_, DataLocation::External) => external.data(tensor)?,
            (Some(raw), _) => raw.clone(),
            (None, _) => typed(tensor, datatype),
        };
        Self::new(name, datatype, &dims, data)
    }

    /// The tensor in its form in a file: raw bytes, in the file itself.
    pub fn to_proto(&self) -> TensorProto {
        let mut tensor = TensorProto {
            name: self.name.clone(),
            data_type: self.datatype as i32,
            dims: self.dims.iter().map(|&dim| dim as i64).collect(),
            ..TensorProto::default()
        };
        match self.datatype {
            DataType::String => tensor.string_data = strings(&self.data).map(<[u8]>::to_vec).collect(),
            _ => tensor.raw_data = Some(self.data.clone()),
        }
        tensor
    }

    /// The name; empty for a tensor inside an attribute.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tensor with another name.
    pub fn renamed(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Element type.
    pub fn datatype(&self) -> DataType {
        self.datatype
    }

    /// Dimensions; none for a scalar.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Raw little-endian bytes.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values of a tensor of floats, converted to 32 bits.
    pub fn to_f32(&self) -> Result<Vec<f32>, Defect> {
        let data = &self.data;
        Ok(match self.datatype {
            DataType::Float => elements(data).map(f32::from_le_bytes).collect(),
            DataType::Double => elements(data).map(|bytes| f64::from_le_bytes(bytes) as f32).collect(),
            DataType::Float16 => elements(data).map(|bytes| f16::from_le_bytes(bytes).to_f32()).collect(),
            DataType::Bfloat16 => elements(data).map(|bytes| bf16::from_le_bytes(bytes).to_f32()).collect(),
            _ => return Err(self.kind("a tensor of floats")),
        })
    }

    /// The values of a tensor of integers or booleans, converted to 64 bits.
    pub fn to_i64(&self) -> Result<Vec<i64>, Defect> {
        let data = &self.data;
        Ok(match self.datatype {
            DataType::Int64 => elements(data).map(i64::from_le_bytes).collect(),
            DataType::Int32 => elements(data).map(|bytes| i32::from_le_bytes(bytes).into()).collect(),
            DataType::Int16 => elements(data).map(|bytes| i16::from_le_bytes(bytes).into()).collect(),
            DataType::Int8 => data.iter().map(|&byte| (byte as i8).into()).collect(),
            DataType::Uint64 => elements(data).map(|bytes| u64::from_le_bytes(bytes) as i64).collect(),
            DataType::Uint32 => elements(data).map(|bytes| u32::from_le_bytes(bytes).into()).collect(),
            DataType::Uint16 => elements(data).map(|bytes| u16::from_le_bytes(bytes).into()).collect(),
            DataType::Uint8 | DataType::Bool => data.iter().map(|&byte| byte.into()).collect(),
            _ => return Err(self.kind("a tensor of integers")),
        })
    }

    /// A tensor with the same name, type and dimensions and other values, rounded to its float type.
    pub fn with_f32(&self, values: &[f32]) -> Result<Self, Defect> {
        let mut data = BytesMut::with_capacity(self.data.len());
        match self.datatype {
            DataType::Float => values.iter().for_each(|value| data.put_f32_le(*value)),
            DataType::Double => values.iter().for_each(|value| data.put_f64_le((*value).into())),
            DataType::Float16 => values.iter().for_each(|v| data.put_slice(&f16::from_f32(*v).to_le_bytes())),
            DataType::Bfloat16 => {
                values.iter().for_each(|v| data.put_slice(&bf16::from_f32(*v).to_le_bytes()))
            }
            _ => return Err(self.kind("a tensor of floats")),
        }
        Self::new(&self.name, self.datatype, &self.dims, data.freeze())
    }

    /// The entries in these places along `axis`.
    pub fn pick(&self, axis: usize, places: &[usize]) -> Result<Self, Defect> {
        let (mut dims, along) = (self.dims.clone(), self.dims[axis]);
        let each = self.data.len() / self.len().max(1) * dims[axis + 1..].iter().product::<usize>();
        let mut data = BytesMut::with_capacity(self.data.len() / along.max(1) * places.len());
        for run in self.data.chunks((along * each).max(1)) {
            places.iter().for_each(|&place| data.put_slice(&run[place * each..(place + 1) * each]));
        }
        dims[axis] = places.len();
        Self::new(&self.name, self.datatype, &dims, data.freeze())
    }

    pub(super) fn kind(&self, expected: &'static str) -> Defect {
        Defect::of_tensor(&self.name, &format!("is {}, expected {expected}", self.datatype))
    }

    fn check(&self) -> Result<(), Defect> {
        let overflow = || self.overflow();
        // Products of some of the dimensions are taken elsewhere, so a dimension of 0 does not make up for the others.
        let filled = self.dims.iter().filter(|&&dim| dim > 0);
        let filled = filled.copied().try_fold(1, usize::checked_mul).ok_or_else(overflow)?;
        let elements = if self.dims.contains(&0) { 0 } else { filled };
        let (expected, actual) = match self.datatype {
            DataType::String => (elements, strings(&self.data).count()),
            datatype => (datatype.size_of(elements).ok_or_else(overflow)?, self.data.len()),
        };
        if expected == actual {
            return Ok(());
        }
        let (datatype, dims) = (self.datatype, &self.dims);
        let problem =
            format!("of {datatype} and dimensions {dims:?} needs {expected} bytes, the file has {actual}");
        Err(Defect::of_tensor(&self.name, &problem))
    }

    pub(super) fn overflow(&self) -> Defect {
        let problem = format!("is too large: the product of dimensions {:?} overflows", self.dims);
        Defect::of_tensor(&self.name, &problem)
    }
}

fn elements<const N: usize>(data: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    data.chunks_exact(N).map(|chunk| chunk.try_into().expect("chunks are exact"))
}

fn strings(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let (length, tail) = rest.split_first_chunk::<4>()?;
        let (text, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = tail;
        Some(text)
    })
}

/// The numbers of the typed fields as raw bytes. Types below 32 bits use one `int32_data` entry per element, types
/// below a byte one entry per packed byte.
fn typed(tensor: &TensorProto, datatype: DataType) -> Bytes {
    let mut data = BytesMut::new();
    match datatype {
        DataType::Float | DataType::Complex64 => tensor.float_data.iter().for_each(|v| data.put_f32_le(*v)),
        DataType::Double | DataType::Complex128 => {
            tensor.double_data.iter().for_each(|v| data.put_f64_le(*v))
        }
        DataType::Int64 => tensor.int64_data.iter().for_each(|v| data.put_i64_le(*v)),
        DataType::Uint64 => tensor.uint64_data.iter().for_each(|v| data.put_u64_le(*v)),
        DataType::Uint32 => tensor.uint64_data.iter().for_each(|v| data.put_u32_le(*v as u32)),
        DataType::String => tensor.string_data.iter().for_each(|text| {
            data.put_u32_le(text.len() as u32);
            data.put_slice(text);
        }),
        narrow => tensor.int32_data.iter().for_each(|v| match narrow.bits() {
            Some(32) => data.put_i32_le(*v),
            Some(16) => data.put_u16_le(*v as u16),
            _ => data.put_u8(*v as u8),
        }),
    }
    data.freeze()
}

impl DataType {
    /// Bits of one element; `None` for strings, whose elements have their own length, and for the undefined type.
    pub const fn bits(self) -> Option<usize> {
        match self {
            DataType::Undefined | DataType::String => None,
            DataType::Uint2 | DataType::Int2 => Some(2),
            DataType::Uint4 | DataType::Int4 | DataType::Float4e2m1 => Some(4),
            DataType::Bool | DataType::Uint8 | DataType::Int8 => Some(8),
            DataType::Float8e4m3fn | DataType::Float8e4m3fnuz | DataType::Float8e5m2 => Some(8),
            DataType::Float8e5m2fnuz | DataType::Float8e8m0 => Some(8),
            DataType::Uint16 | DataType::Int16 | DataType::Float16 | DataType::Bfloat16 => Some(16),
            DataType::Uint32 | DataType::Int32 | DataType::Float => Some(32),
            DataType::Uint64 | DataType::Int64 | DataType::Double | DataType::Complex64 => Some(64),
            DataType::Complex128 => Some(128),
        }
    }

    /// Bytes of `elements` elements when stored raw (elements smaller than a byte are packed).
    pub fn size_of(self, elements: usize) -> Option<usize> {
        Some(elements.checked_mul(self.bits()?)?.div_ceil(8))
    }

    /// Whether gradients can flow through it, as for parameters.
    pub const fn is_float(self) -> bool {
        matches!(self, DataType::Float | DataType::Double | DataType::Float16 | DataType::Bfloat16)
    }

    /// Whether it is an integer type of at least eight bits, or boolean.
    pub const fn is_integer(self) -> bool {
        use DataType::*;
        matches!(self, Bool | Uint8 | Uint16 | Uint32 | Uint64 | Int8 | Int16 | Int32 | Int64)
    }

    /// The serving protocol's type; `None` if the protocol has none.
    pub const fn to_protocol(self) -> Option<parm_protocol::DataType> {
        use parm_protocol::DataType as Wire;
        Some(match self {
            DataType::Bool => Wire::Bool,
            DataType::Uint8 => Wire::Uint8,
            DataType::Uint16 => Wire::Uint16,
            DataType::Uint32 => Wire::Uint32,
            DataType::Uint64 => Wire::Uint64,
            DataType::Int8 => Wire::Int8,
            DataType::Int16 => Wire::Int16,
            DataType::Int32 => Wire::Int32,
            DataType::Int64 => Wire::Int64,
            DataType::Float16 => Wire::Fp16,
            DataType::Bfloat16 => Wire::Bf16,
            DataType::Float => Wire::Fp32,
            DataType::Double => Wire::Fp64,
            DataType::String => Wire::Bytes,
            _ => return None,
        })
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_protocol() {
            Some(wire) => wire.fmt(f),
            None => f.write_str(&format!("{self:?}").to_uppercase()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tensor: &TensorProto) -> Result<Tensor, Defect> {
        Tensor::from_proto(tensor, &External::default())
    }

    fn proto(datatype: DataType, dims: &[i64]) -> TensorProto {
        TensorProto {
            name: "w".into(),
            data_type: datatype as i32,
            dims: dims.to_vec(),
            ..Default::default()
        }
    }

    #[test]
    fn typed_fields_equal_raw_bytes() {
        let floats = TensorProto { float_data: vec![1.5, -2.0], ..proto(DataType::Float, &[2]) };
        assert_eq!(read(&floats).unwrap(), Tensor::from_f32("w", &[2], &[1.5, -2.0]).unwrap());
        let halves = TensorProto { int32_data: vec![0x3e00, 0xc000], ..proto(DataType::Float16, &[1, 2]) };
        assert_eq!(read(&halves).unwrap().to_f32().unwrap(), [1.5, -2.0]);
        let bytes = TensorProto { int32_data: vec![-3, 7], ..proto(DataType::Int8, &[2]) };
        assert_eq!(read(&bytes).unwrap().to_i64().unwrap(), [-3, 7]);
        let longs = TensorProto { int64_data: vec![-1], ..proto(DataType::Int64, &[]) };
        assert_eq!(read(&longs).unwrap().to_i64().unwrap(), [-1]);
        let words = TensorProto { uint64_data: vec![u32::MAX.into()], ..proto(DataType::Uint32, &[1]) };
        assert_eq!(read(&words).unwrap().to_i64().unwrap(), [i64::from(u32::MAX)]);
    }

    #[test]
    fn strings_survive_a_round_trip() {
        let text =
            TensorProto { string_data: vec![b"a".to_vec(), b"".to_vec()], ..proto(DataType::String, &[2]) };
        assert_eq!(read(&text).unwrap().to_proto(), text);
    }
}
