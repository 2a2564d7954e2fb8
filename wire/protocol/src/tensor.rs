//! A tensor on the wire: a datatype, a shape and raw row-major bytes, shared without copying.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::{DataType, Error};

/// Dimensions of a tensor. Four fit without an allocation.
pub type Shape = SmallVec<[usize; 4]>;

/// A tensor whose bytes agree with its datatype and shape (checked at construction).
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    datatype: DataType,
    shape: Shape,
    data: Bytes,
    starts: Starts,
}

/// The offsets of the rows of `BYTES`, found when a row is first taken and shared by clones. Searching them for each
/// row would take a time of rows by elements.
#[derive(Clone, Default)]
struct Starts(Option<Arc<OnceLock<Box<[usize]>>>>);

impl Tensor {
    /// Wraps `data`, which must have exactly the size that `datatype` and `shape` require.
    pub fn new(datatype: DataType, shape: impl Into<Shape>, data: Bytes) -> Result<Self, Error> {
        let shape = shape.into();
        let elements = elements(&shape)?;
        match datatype.size() {
            Some(size) => {
                let expected = elements.checked_mul(size).ok_or_else(|| overflow(&shape))?;
                if data.len() != expected {
                    let actual = data.len();
                    let message = format!("shape {shape:?} needs {expected} bytes of data, got {actual}");
                    return Err(Error::Invalid { message });
                }
            }
            None => check_strings(&shape, elements, &data)?,
        }
        Ok(Self { datatype, shape, data, starts: Starts::of(datatype) })
    }

    /// A tensor of FP32 values.
    pub fn from_f32(shape: impl Into<Shape>, values: &[f32]) -> Result<Self, Error> {
        let mut data = BytesMut::with_capacity(values.len() * 4);
        for value in values {
            data.extend_from_slice(&value.to_le_bytes());
        }
        Self::new(DataType::Fp32, shape, data.freeze())
    }

    /// The element type.
    pub fn datatype(&self) -> DataType {
        self.datatype
    }

    /// The dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The raw bytes; for `BYTES` each element is a u32 little-endian length and its bytes.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Takes the raw bytes.
    pub fn into_data(self) -> Bytes {
        self.data
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the tensor is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows: the first dimension, or 1 for a scalar.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// The FP32 values, in place where the bytes are aligned and the machine is little-endian.
    pub fn as_f32(&self) -> Result<Cow<'_, [f32]>, Error> {
        if self.datatype != DataType::Fp32 {
            return Err(Error::invalid(format!("datatype is {}, expected FP32", self.datatype)));
        }
        if cfg!(target_endian = "little")
            && let Ok(values) = bytemuck::try_cast_slice(&self.data)
        {
            return Ok(Cow::Borrowed(values));
        }
        let values = self.data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        Ok(Cow::Owned(values.collect()))
    }

    /// The elements of a `BYTES` tensor.
    pub fn strings(&self) -> impl Iterator<Item = &[u8]> {
        strings_in(&self.data)
    }

    /// Rows `start..start + count` along the first dimension, sharing the bytes.
    pub fn slice_rows(&self, start: usize, count: usize) -> Result<Tensor, Error> {
        let rows = self.rows();
        if self.shape.is_empty() || start.checked_add(count).is_none_or(|end| end > rows) {
            return Err(Error::RowsOutOfRange { start, count, rows });
        }
        let mut shape = self.shape.clone();
        shape[0] = count;
        let data = match self.datatype.size() {
            Some(_) => {
                let row = self.data.len() / rows.max(1);
                self.data.slice(start * row..(start + count) * row)
            }
            None => {
                let starts = self.starts.get(&self.data, rows, self.len() / rows.max(1));
                self.data.slice(starts[start]..starts[start + count])
            }
        };
        Ok(Tensor { datatype: self.datatype, shape, data, starts: Starts::of(self.datatype) })
    }

    /// Stacks tensors of one datatype and row shape along the first dimension. A single tensor is passed through.
    pub fn concat_rows(parts: &[Tensor]) -> Result<Tensor, Error> {
        let [first, rest @ ..] = parts else {
            return Err(Error::NothingToConcatenate);
        };
        if rest.is_empty() {
            return Ok(first.clone());
        }
        let mut rows = 0;
        let mut data = BytesMut::with_capacity(parts.iter().map(|part| part.data.len()).sum());
        for part in parts {
            if part.datatype != first.datatype || part.shape.is_empty() || part.shape[1..] != first.shape[1..]
            {
                return Err(Error::RowShapeMismatch {
                    expected: first.shape.to_vec(),
                    actual: part.shape.to_vec(),
                });
            }
            rows += part.rows();
            data.extend_from_slice(&part.data);
        }
        let mut shape = first.shape.clone();
        shape[0] = rows;
        let starts = Starts::of(first.datatype);
        Ok(Tensor { datatype: first.datatype, shape, data: data.freeze(), starts })
    }
}

/// The strings in the data of a `BYTES` tensor.
pub(crate) fn strings_in(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, tail) = data.split_first_chunk::<4>()?;
        let (string, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        data = tail;
        Some(string)
    })
}

fn elements(shape: &[usize]) -> Result<usize, Error> {
    shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim)).ok_or_else(|| overflow(shape))
}

pub(crate) fn overflow(shape: &[usize]) -> Error {
    Error::invalid(format!("shape {shape:?} has more elements than can be addressed"))
}

fn check_strings(shape: &[usize], elements: usize, data: &[u8]) -> Result<(), Error> {
    let (mut actual, mut bytes) = (0, 0);
    for string in strings_in(data).take(elements) {
        (actual, bytes) = (actual + 1, bytes + 4 + string.len());
    }
    if actual == elements && bytes == data.len() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "shape {shape:?} needs {elements} whole length-prefixed strings, found {actual} or bytes left over"
    )))
}

impl Starts {
    fn of(datatype: DataType) -> Self {
        Self(datatype.size().is_none().then(Arc::default))
    }

    /// The offset of each row in checked `BYTES` data, and its end.
    fn get(&self, data: &[u8], rows: usize, per_row: usize) -> Cow<'_, [usize]> {
        match &self.0 {
            Some(known) => Cow::Borrowed(known.get_or_init(|| row_starts(data, rows, per_row))),
            None => Cow::Owned(row_starts(data, rows, per_row).into_vec()),
        }
    }
}

impl PartialEq for Starts {
    /// They follow from the data.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Starts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Starts")
    }
}

fn row_starts(data: &[u8], rows: usize, per_row: usize) -> Box<[usize]> {
    let (mut at, mut strings) = (0, strings_in(data));
    let next_row = |_| {
        let start = at;
        at += strings.by_ref().take(per_row).map(|string| 4 + string.len()).sum::<usize>();
        start
    };
    let mut starts: Vec<usize> = (0..rows).map(next_row).collect();
    starts.push(data.len());
    starts.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_whose_size_overflows_is_rejected() {
        let shape = [usize::MAX, 2];
        let error = Tensor::new(DataType::Fp32, shape.as_slice(), Bytes::new()).unwrap_err();
        assert_eq!(error, overflow(&shape));
        let shape = [usize::MAX / 4];
        assert_eq!(Tensor::new(DataType::Fp64, shape.as_slice(), Bytes::new()), Err(overflow(&shape)));
    }

    #[test]
    fn slices_of_rows_concatenate_back_to_the_whole() {
        let whole = Tensor::from_f32([3, 2].as_slice(), &[1., 2., 3., 4., 5., 6.]).unwrap();
        let parts = [whole.slice_rows(0, 1).unwrap(), whole.slice_rows(1, 2).unwrap()];
        assert_eq!(Tensor::concat_rows(&parts).unwrap(), whole);
        assert_eq!(whole.slice_rows(2, 2), Err(Error::RowsOutOfRange { start: 2, count: 2, rows: 3 }));
    }

    #[test]
    fn strings_are_checked_and_sliced_by_element() {
        let data = Bytes::from_static(b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc");
        let strings = Tensor::new(DataType::Bytes, [3].as_slice(), data.clone()).unwrap();
        assert_eq!(strings.slice_rows(1, 2).unwrap().data(), &data.slice(5..));
        let truncated = Tensor::new(DataType::Bytes, [3].as_slice(), data.slice(..data.len() - 1));
        let error = truncated.unwrap_err().to_string();
        assert!(error.contains("needs 3 whole length-prefixed strings, found 2"), "{error}");
    }

    #[test]
    fn rows_of_several_strings_are_sliced_by_row() {
        let data = Bytes::from_static(b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc\0\0\0\0");
        let strings = Tensor::new(DataType::Bytes, [2, 2].as_slice(), data.clone()).unwrap();
        let rows = [0, 1].map(|row| strings.slice_rows(row, 1).unwrap());
        assert_eq!([rows[0].data(), rows[1].data()], [&data.slice(..9), &data.slice(9..)]);
        assert_eq!(rows[1].slice_rows(0, 1).unwrap(), rows[1]);
        assert_eq!(strings.slice_rows(2, 0).unwrap().data().len(), 0);
        assert_eq!(Tensor::concat_rows(&rows).unwrap(), strings);
        let none = Tensor::new(DataType::Bytes, [0, 2].as_slice(), Bytes::new()).unwrap();
        assert_eq!(none.slice_rows(0, 0).unwrap(), none);
    }

    #[test]
    fn unaligned_floats_are_still_read() {
        let mut data = BytesMut::from(&[0u8][..]);
        data.extend_from_slice(&1.5f32.to_le_bytes());
        data.extend_from_slice(&(-2.0f32).to_le_bytes());
        let tensor = Tensor::new(DataType::Fp32, [2].as_slice(), data.freeze().slice(1..)).unwrap();
        assert_eq!(tensor.as_f32().unwrap().as_ref(), &[1.5, -2.0]);
    }
}
