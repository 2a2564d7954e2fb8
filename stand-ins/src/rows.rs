//! Rows that the deployed model is asked about.

use bytes::{BufMut, Bytes, BytesMut};
use parm_backend::engine::{Declared, Signature};
use parm_protocol::{DataType, Shape, Tensor};

use crate::Error;

/// Most bytes of rows: they are held in memory beside what the graph makes of them.
const MOST_BYTES: u64 = 4 << 30;

/// Rows of every input, in the model's order and of its types.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    names: Vec<String>,
    inputs: Vec<Tensor>,
    /// The axes of each input that vary in size from row to row.
    varying: Vec<Vec<usize>>,
    /// Whether the model takes any number of rows at a time; otherwise it takes one.
    is_batched: bool,
}

impl Rows {
    /// Holds arrays to what the model takes, and brings their numbers to its types.
    pub fn new(signature: &Signature, arrays: &[Tensor]) -> Result<Self, Error> {
        let declared = &signature.inputs;
        if declared.len() != arrays.len() {
            let names: Vec<&str> = declared.iter().map(|input| input.name.as_str()).collect();
            let (wanted, given, names) = (declared.len(), arrays.len(), names.join(", "));
            return Err(Error::Inputs { wanted, given, names });
        }
        let bytes = arrays.iter().map(|array| array.data().len() as u64).sum();
        if bytes > MOST_BYTES {
            return Err(Error::TooManyBytes { bytes, limit: MOST_BYTES });
        }
        if !arrays.is_empty() && arrays.iter().all(|array| array.data().is_empty()) {
            // Without elements there may be more rows than can be counted.
            let (input, actual) = (declared[0].name.clone(), arrays[0].shape().to_vec());
            return Err(Error::NoElement { input, actual });
        }
        let counts: Vec<usize> = arrays.iter().map(Tensor::rows).collect();
        if counts.iter().any(|count| *count != counts[0]) {
            return Err(Error::RowCounts { counts });
        }
        let is_batched = signature.is_batched();
        // Where one input is of one row, such as a state, the others may be of any number: they are given one at a time.
        let is_of_one = |input: &&Declared| matches!(input.shape.first(), Some(1 | -1));
        if let Some(fixed) = declared.iter().find(|input| !is_batched && !is_of_one(input)) {
            let rows = fixed.shape.first().copied().unwrap_or(0);
            return Err(Error::FixedBatch { input: fixed.name.clone(), rows });
        }
        let inputs = declared.iter().zip(arrays).map(|(input, array)| fitted(input, array));
        Ok(Self {
            names: declared.iter().map(|input| input.name.clone()).collect(),
            inputs: inputs.collect::<Result<_, _>>()?,
            varying: declared.iter().map(varying).collect(),
            is_batched,
        })
    }

    /// An array for each input, in the model's order.
    pub fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.inputs.first().map_or(0, Tensor::rows)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the model takes any number of rows at a time.
    pub fn is_batched(&self) -> bool {
        self.is_batched
    }

    /// These rows, in this order.
    pub fn select(&self, places: &[usize]) -> Result<Self, Error> {
        let pick = |input: &Tensor| {
            let picked = places.iter().map(|&place| input.slice_rows(place, 1));
            Ok(Tensor::concat_rows(&picked.collect::<Result<Vec<_>, _>>()?)?)
        };
        let inputs = self.inputs.iter().map(pick).collect::<Result<_, Error>>()?;
        Ok(Self { inputs, ..self.clone() })
    }

    /// The inputs of so many rows from `start` on.
    pub(crate) fn slice(&self, start: usize, count: usize) -> Result<Vec<Tensor>, Error> {
        self.inputs.iter().map(|input| Ok(input.slice_rows(start, count)?)).collect()
    }

    /// Whether every row that the model takes has the same sizes, and it takes any number of them.
    pub(crate) fn is_fixed(&self) -> bool {
        self.varying.iter().all(Vec::is_empty) && self.is_batched
    }

    /// The same rows with half of what varies in size; `None` where nothing does, or where there is no half.
    pub(crate) fn halved(&self) -> Result<Option<Self>, Error> {
        let sizes = self.inputs.iter().zip(&self.varying);
        let mut cut = sizes.flat_map(|(input, axes)| axes.iter().map(|&axis| input.shape()[axis])).peekable();
        if cut.peek().is_none() || cut.any(|size| size < 2) {
            return Ok(None);
        }
        let halve = |(input, axes): (&Tensor, &Vec<usize>)| {
            axes.iter().try_fold(input.clone(), |input, &axis| first_half(&input, axis))
        };
        let inputs = self.inputs.iter().zip(&self.varying).map(halve).collect::<Result<_, _>>()?;
        Ok(Some(Self { inputs, ..self.clone() }))
    }

    /// The sizes of a row of each input.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.names.iter().map(String::as_str).zip(self.inputs.iter().map(|input| &input.shape()[1..]))
    }

    /// The least and the greatest number of an input; `None` for what is no number.
    pub fn range(&self, input: usize) -> Option<(f32, f32)> {
        let numbers = numbers(&self.inputs[input])?;
        let (low, high) = numbers
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &n| (low.min(n), high.max(n)));
        (low < high).then_some((low as f32, high as f32))
    }
}

/// An array as the model takes it.
fn fitted(input: &Declared, array: &Tensor) -> Result<Tensor, Error> {
    let wanted: Vec<i64> = input.shape.iter().skip(1).copied().collect();
    let actual = array.shape().get(1..).unwrap_or_default();
    let fits = wanted.iter().zip(actual).all(|(&wanted, &actual)| wanted < 0 || wanted == actual as i64);
    // Pictures of one channel are often stored without it.
    let is_same = || {
        let known = wanted.iter().all(|&size| size >= 0);
        let size = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(1_u64, u64::saturating_mul);
        known && size(&mut wanted.iter().map(|&n| n as u64)) == size(&mut actual.iter().map(|&n| n as u64))
    };
    let shape: Shape = if wanted.len() == actual.len() && fits {
        array.shape().into()
    } else if is_same() {
        std::iter::once(array.rows()).chain(wanted.iter().map(|&size| size as usize)).collect()
    } else {
        let (input, wanted) = (input.name.clone(), format!("{wanted:?}"));
        return Err(Error::RowShape { input, wanted, actual: actual.to_vec() });
    };
    if array.datatype() == input.datatype {
        return Ok(Tensor::new(input.datatype, shape, array.data().clone())?);
    }
    let refused = || Error::RowType {
        input: input.name.clone(),
        wanted: input.datatype.to_string(),
        actual: array.datatype().to_string(),
    };
    let numbers = numbers(array).ok_or_else(refused)?;
    Ok(Tensor::new(input.datatype, shape, bytes_of(input.datatype, &numbers).ok_or_else(refused)?)?)
}

/// The axes of an input, behind that of the rows, that have no declared size.
fn varying(input: &Declared) -> Vec<usize> {
    let axes = input.shape.iter().enumerate().skip(1);
    axes.filter(|(_, size)| **size < 0).map(|(axis, _)| axis).collect()
}

/// The first half of a tensor along an axis.
fn first_half(tensor: &Tensor, axis: usize) -> Result<Tensor, Error> {
    let mut shape = tensor.shape().to_vec();
    let inner: usize = shape[axis + 1..].iter().product();
    let each = tensor.data().len() / tensor.len().max(1) * inner;
    let (whole, half) = (shape[axis] * each, shape[axis] / 2 * each);
    let data: Vec<u8> =
        tensor.data().chunks(whole.max(1)).flat_map(|run| run[..half].iter().copied()).collect();
    shape[axis] /= 2;
    Ok(Tensor::new(tensor.datatype(), shape.as_slice(), data.into())?)
}

fn numbers(tensor: &Tensor) -> Option<Vec<f64>> {
    parm_arrays::numbers(tensor).map(Iterator::collect)
}

fn bytes_of(datatype: DataType, numbers: &[f64]) -> Option<Bytes> {
    let mut data = BytesMut::new();
    macro_rules! write {
        ($kind:ty) => {
            numbers.iter().for_each(|&number| data.put_slice(&(number as $kind).to_le_bytes()))
        };
    }
    match datatype {
        DataType::Uint8 => write!(u8),
        DataType::Int8 => write!(i8),
        DataType::Uint16 => write!(u16),
        DataType::Int16 => write!(i16),
        DataType::Uint32 => write!(u32),
        DataType::Int32 => write!(i32),
        DataType::Uint64 => write!(u64),
        DataType::Int64 => write!(i64),
        DataType::Fp32 => write!(f32),
        DataType::Fp64 => write!(f64),
        _ => return None,
    }
    Some(data.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(shape: &[i64], datatype: DataType) -> Signature {
        let declared = |name: &str| Declared { name: name.into(), datatype, shape: shape.to_vec() };
        Signature { inputs: vec![declared("x")], outputs: vec![declared("y")] }
    }

    #[test]
    fn numbers_are_brought_to_the_type_and_shape_that_the_model_takes() {
        let pixels = Tensor::new(DataType::Uint8, [2, 2, 2].as_slice(), vec![0, 1, 2, 3, 4, 5, 6, 7].into());
        let rows = Rows::new(&signature(&[-1, 1, 2, 2], DataType::Fp32), &[pixels.unwrap()]).unwrap();
        let inputs = rows.slice(1, 1).unwrap();
        assert_eq!(inputs[0].shape(), [1, 1, 2, 2]);
        assert_eq!(inputs[0].as_f32().unwrap().as_ref(), [4.0, 5.0, 6.0, 7.0]);
        assert_eq!(rows.range(0), Some((0.0, 7.0)));
    }

    #[test]
    fn rows_of_another_model_are_refused_with_both_shapes() {
        let check = |shape: &[usize], wanted: &str| {
            let array = Tensor::from_f32(shape, &vec![0.0; shape.iter().product()]).unwrap();
            let error = Rows::new(&signature(&[-1, 3, 4], DataType::Fp32), &[array]).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        };
        check(&[5, 3, 5], "takes rows of [3, 4], the data has rows of [3, 5]");
        check(&[5, 11], "rows of [11]");
        let none = Rows::new(&signature(&[-1, 2], DataType::Fp32), &[]).unwrap_err().to_string();
        assert!(none.contains("has 1 inputs (x), data for 0"), "{none}");
    }

    #[test]
    fn rows_are_rejected_when_they_hold_no_element() {
        let many = 1 << 60;
        for shape in [&[many, 0][..], &[0, many, many], &[many, many, 0], &[0]] {
            let Ok(array) = Tensor::new(DataType::Fp32, shape, Default::default()) else { continue };
            for wanted in [&[-1, 0][..], &[-1, -1], &[-1, i64::MAX, i64::MAX]] {
                let rows = Rows::new(&signature(wanted, DataType::Fp32), std::slice::from_ref(&array));
                assert!(matches!(rows, Err(Error::NoElement { .. })), "{shape:?} for {wanted:?}");
            }
        }
        let array = Tensor::from_f32([2, 3].as_slice(), &[0.0; 6]).unwrap();
        let huge = Rows::new(&signature(&[-1, i64::MAX, i64::MAX], DataType::Fp32), &[array]).unwrap_err();
        assert!(matches!(huge, Error::RowShape { .. }), "{huge}");
    }

    #[test]
    fn halves_of_rows_are_their_beginnings_along_what_varies() {
        let array = Tensor::from_f32([2, 2, 3].as_slice(), &(0..12).map(|n| n as f32).collect::<Vec<_>>());
        let rows = |shape: &[i64]| {
            Rows::new(&signature(shape, DataType::Fp32), std::slice::from_ref(array.as_ref().unwrap()))
                .unwrap()
        };
        let halved = rows(&[-1, -1, 3]).halved().unwrap().unwrap();
        let inputs = halved.slice(0, 2).unwrap();
        assert_eq!(inputs[0].shape(), [2, 1, 3]);
        assert_eq!(inputs[0].as_f32().unwrap().as_ref(), [0.0, 1.0, 2.0, 6.0, 7.0, 8.0]);
        assert_eq!(rows(&[-1, 2, -1]).halved().unwrap().unwrap().slice(0, 1).unwrap()[0].shape(), [1, 2, 1]);
        assert!(rows(&[-1, 2, 3]).halved().unwrap().is_none(), "nothing varies");
    }

    #[test]
    fn a_model_of_a_fixed_batch_is_refused_and_one_of_one_row_is_not() {
        let array = Tensor::from_f32([4, 2].as_slice(), &[0.0; 8]).unwrap();
        let rows = |batch| Rows::new(&signature(&[batch, 2], DataType::Fp32), std::slice::from_ref(&array));
        assert_eq!(rows(3).unwrap_err(), Error::FixedBatch { input: "x".into(), rows: 3 });
        assert!(!rows(1).unwrap().is_batched());
    }

    #[test]
    fn beside_a_state_of_one_row_all_inputs_are_given_one_at_a_time() {
        let declared = |name: &str, shape: &[i64]| Declared {
            name: name.into(),
            datatype: DataType::Fp32,
            shape: shape.to_vec(),
        };
        let inputs = vec![declared("x", &[-1, 2]), declared("state", &[1, 3])];
        let signature = Signature { inputs, outputs: vec![declared("y", &[-1, 2])] };
        let [x, state] =
            [2, 3].map(|width| Tensor::from_f32([4, width].as_slice(), &vec![0.0; 4 * width]).unwrap());
        let rows = Rows::new(&signature, &[x, state]).unwrap();
        assert!(!rows.is_batched() && rows.len() == 4);
    }
}
