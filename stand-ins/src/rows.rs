//! Rows of input: arrays checked against the model's inputs and converted to their types.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use half::f16;
use parm_backend::engine::{Declared, Signature};
use parm_protocol::{DataType, Shape, Tensor};

use crate::{Error, unusable};

/// Maximum size of the rows: they stay in memory together with the graph's intermediate values.
const MOST_BYTES: u64 = 4 << 30;

/// Rows of every input, in the model's order and types. A choice of rows shares the memory of all.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    names: Vec<String>,
    inputs: Vec<Tensor>,
    /// The chosen rows of the inputs; all if `None`.
    places: Option<Arc<[usize]>>,
    /// The axes of each input, except that of the rows, that have no declared size.
    varying: Vec<Vec<usize>>,
    /// Whether the model takes any number of rows at a time; otherwise it takes one.
    is_batched: bool,
}

impl Rows {
    /// Checks arrays against the model's inputs and converts their numbers to its types.
    pub fn new(signature: &Signature, arrays: &[Tensor]) -> Result<Self, Error> {
        let declared = &signature.inputs;
        let names = || declared.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ");
        if declared.len() != arrays.len() {
            return unusable(format!(
                "the model has {} inputs ({}), got {} arrays: give one array per input in this order",
                declared.len(),
                names(),
                arrays.len()
            ));
        }
        let bytes: u64 = arrays.iter().map(|array| array.data().len() as u64).sum();
        if bytes > MOST_BYTES {
            return unusable(format!("the rows have {bytes} bytes, more than {MOST_BYTES}: give fewer rows"));
        }
        if !arrays.is_empty() && arrays.iter().all(|array| array.data().is_empty()) {
            // Rows without elements could be more than memory can count.
            let (input, actual) = (&declared[0].name, arrays[0].shape());
            return unusable(format!(
                "the data for input '{input}' has shape {actual:?}, which has no elements: give an array of rows"
            ));
        }
        let counts: Vec<usize> = arrays.iter().map(Tensor::rows).collect();
        if counts.iter().any(|count| *count != counts[0]) {
            return unusable(format!(
                "inputs {} have {counts:?} rows: give the same number for each, on the first axis",
                names()
            ));
        }
        let is_batched = signature.is_batched();
        // Some models have an input of one row, such as a state: then all rows are given one at a time.
        let is_of_one = |input: &&Declared| matches!(input.shape.first(), Some(1 | -1));
        if let Some(fixed) = declared.iter().find(|input| !is_batched && !is_of_one(input)) {
            let (input, rows) = (&fixed.name, fixed.shape.first().copied().unwrap_or(0));
            return unusable(format!(
                "the first axis of input '{input}' has {rows} elements: rows must be on it, so export it with a dynamic size, or \
                 with 1"
            ));
        }
        let inputs = declared.iter().zip(arrays).map(|(input, array)| fitted(input, array));
        Ok(Self {
            names: declared.iter().map(|input| input.name.clone()).collect(),
            inputs: inputs.collect::<Result<_, _>>()?,
            places: None,
            varying: declared.iter().map(varying).collect(),
            is_batched,
        })
    }

    /// An array for each input, in the model's order: copies if the rows are a choice.
    pub fn inputs(&self) -> Result<Vec<Tensor>, Error> {
        self.slice(0, self.len())
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        let all = || self.inputs.first().map_or(0, Tensor::rows);
        self.places.as_ref().map_or_else(all, |places| places.len())
    }

    /// Whether it has zero rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the model takes any number of rows at a time.
    pub fn is_batched(&self) -> bool {
        self.is_batched
    }

    /// The places of different rows: the newest copy of each if rows are in order of time, otherwise the first.
    pub fn distinct(&self, in_time: bool) -> Vec<usize> {
        let mut seen: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut places = Vec::new();
        let order: Box<dyn Iterator<Item = usize>> =
            if in_time { Box::new((0..self.len()).rev()) } else { Box::new(0..self.len()) };
        for place in order {
            let alike = seen.entry(self.hash_of(place)).or_default();
            if !alike.iter().any(|&other| self.is_same(place, self, other)) {
                alike.push(place);
                places.push(place);
            }
        }
        places.sort_unstable();
        places
    }

    /// The places of rows that are not among others.
    pub fn outside(&self, others: &Self) -> Vec<usize> {
        let mut known: HashMap<u64, Vec<usize>> = HashMap::new();
        (0..others.len()).for_each(|place| known.entry(others.hash_of(place)).or_default().push(place));
        let is_known = |place: usize| {
            let alike = known.get(&self.hash_of(place));
            alike.is_some_and(|alike| alike.iter().any(|&other| self.is_same(place, others, other)))
        };
        (0..self.len()).filter(|&place| !is_known(place)).collect()
    }

    fn hash_of(&self, place: usize) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.inputs.iter().for_each(|input| self.bytes_at(input, place).hash(&mut hasher));
        hasher.finish()
    }

    fn is_same(&self, place: usize, others: &Self, other: usize) -> bool {
        let mut pairs = self.inputs.iter().zip(&others.inputs);
        pairs.all(|(a, b)| {
            a.shape()[1..] == b.shape()[1..] && self.bytes_at(a, place) == others.bytes_at(b, other)
        })
    }

    /// The bytes of a row; of strings, whose rows have no common size, those of all.
    fn bytes_at(&self, input: &Tensor, place: usize) -> Bytes {
        self.part(input, place, 1).map_or(Bytes::new(), |row| row.data().clone())
    }

    /// These rows, in this order, without a copy.
    pub fn select(&self, places: &[usize]) -> Result<Self, Error> {
        if places.is_empty() {
            return Err(parm_protocol::Error::NothingToConcatenate.into());
        }
        let rows = self.len();
        if let Some(&start) = places.iter().find(|place| **place >= rows) {
            return Err(parm_protocol::Error::RowsOutOfRange { start, count: 1, rows }.into());
        }
        let own = self.places.as_deref();
        let places = places.iter().map(|&place| own.map_or(place, |own| own[place])).collect();
        Ok(Self { places: Some(places), ..self.clone() })
    }

    /// A copy of the first rows, at most `count`, next to one another: runs of several need no further copy.
    pub(crate) fn first(&self, count: usize) -> Result<Self, Error> {
        Ok(Self { inputs: self.slice(0, count.min(self.len()))?, places: None, ..self.clone() })
    }

    /// The bytes of a row of all inputs.
    pub(crate) fn bytes(&self) -> u64 {
        let each = |input: &Tensor| (input.data().len() / input.rows().max(1)) as u64;
        self.inputs.iter().map(each).sum()
    }

    /// The inputs of `count` rows from `start` on.
    pub(crate) fn slice(&self, start: usize, count: usize) -> Result<Vec<Tensor>, Error> {
        self.inputs.iter().map(|input| self.part(input, start, count)).collect()
    }

    fn part(&self, input: &Tensor, start: usize, count: usize) -> Result<Tensor, Error> {
        let Some(places) = &self.places else { return Ok(input.slice_rows(start, count)?) };
        let rows = places.len();
        let places = start.checked_add(count).and_then(|end| places.get(start..end));
        let places = places.ok_or(parm_protocol::Error::RowsOutOfRange { start, count, rows })?;
        let parts = places.iter().map(|&place| input.slice_rows(place, 1));
        Ok(Tensor::concat_rows(&parts.collect::<Result<Vec<_>, _>>()?)?)
    }

    /// Whether the model takes any number of rows and every row has the same sizes.
    pub(crate) fn is_fixed(&self) -> bool {
        self.varying.iter().all(Vec::is_empty) && self.is_batched
    }

    /// The same rows with the varying axes cut to half; `None` if no axis varies or one is too short for it.
    pub(crate) fn halved(&self) -> Result<Option<Self>, Error> {
        let own = self.inputs()?;
        let sizes = own.iter().zip(&self.varying);
        let mut cut = sizes.flat_map(|(input, axes)| axes.iter().map(|&axis| input.shape()[axis])).peekable();
        if cut.peek().is_none() || cut.any(|size| size < 2) {
            return Ok(None);
        }
        let halve = |(input, axes): (&Tensor, &Vec<usize>)| {
            axes.iter().try_fold(input.clone(), |input, &axis| first_half(&input, axis))
        };
        let inputs = own.iter().zip(&self.varying).map(halve).collect::<Result<_, _>>()?;
        Ok(Some(Self { inputs, places: None, ..self.clone() }))
    }

    /// The sizes of a row of each input.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.names.iter().map(String::as_str).zip(self.inputs.iter().map(|input| &input.shape()[1..]))
    }

    /// The smallest and the largest number of an input; `None` if it is not numeric.
    pub fn range(&self, input: usize) -> Option<(f32, f32)> {
        let own = self.part(&self.inputs[input], 0, self.len()).ok()?;
        let (low, high) = parm_arrays::numbers(&own)?
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), n| (low.min(n), high.max(n)));
        (low < high).then_some((low as f32, high as f32))
    }
}

/// Converts an array to the model's shape and type.
fn fitted(input: &Declared, array: &Tensor) -> Result<Tensor, Error> {
    let wanted: Vec<i64> = input.shape.iter().skip(1).copied().collect();
    let actual = array.shape().get(1..).unwrap_or_default();
    let fits = wanted.iter().zip(actual).all(|(&wanted, &actual)| wanted < 0 || wanted == actual as i64);
    // Pictures of one channel are often stored without the channel axis. Other axes have a meaning: three channels that
    // come last are not those that come first.
    let is_same = || {
        let wide = |sizes: &mut dyn Iterator<Item = i64>| sizes.filter(|&size| size != 1).collect::<Vec<_>>();
        let known = wanted.iter().all(|&size| size >= 0);
        known && wide(&mut wanted.iter().copied()) == wide(&mut actual.iter().map(|&size| size as i64))
    };
    let shape: Shape = if wanted.len() == actual.len() && fits {
        array.shape().into()
    } else if is_same() {
        std::iter::once(array.rows()).chain(wanted.iter().map(|&size| size as usize)).collect()
    } else {
        return unusable(format!(
            "input '{}' takes rows of {wanted:?}, the data has rows of {actual:?}: give rows as clients send them",
            input.name
        ));
    };
    if array.datatype() == input.datatype {
        return finite(input, Tensor::new(input.datatype, shape, array.data().clone())?);
    }
    let refused = || {
        let (input, wanted, actual) = (&input.name, input.datatype, array.datatype());
        Error::Unusable(format!(
            "input '{input}' takes {wanted}, {actual} cannot be converted: give numbers of that type"
        ))
    };
    let numbers = parm_arrays::numbers(array).ok_or_else(refused)?;
    let data = bytes_of(input.datatype, numbers, array.len()).ok_or_else(refused)?;
    finite(input, Tensor::new(input.datatype, shape, data)?)
}

/// Refuses NaN and infinity: the deployed model's answer to them is an accident.
fn finite(input: &Declared, tensor: Tensor) -> Result<Tensor, Error> {
    let is_float =
        matches!(tensor.datatype(), DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64);
    let numbers = parm_arrays::numbers(&tensor).filter(|_| is_float);
    if let Some(at) = numbers.and_then(|mut all| all.position(|number| !number.is_finite())) {
        let row = at / (tensor.len() / tensor.rows().max(1)).max(1);
        let input = &input.name;
        return unusable(format!("input '{input}' has NaN or infinity in row {row}: remove that row"));
    }
    Ok(tensor)
}

/// The axes of an input, except that of the rows, that have no declared size.
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

/// Numbers in the memory of this type, without a list of them on the way.
fn bytes_of(datatype: DataType, numbers: impl Iterator<Item = f64>, count: usize) -> Option<Bytes> {
    let mut data = BytesMut::with_capacity(count * datatype.size()?);
    macro_rules! write {
        ($kind:ty) => {
            numbers.for_each(|number| data.put_slice(&(number as $kind).to_le_bytes()))
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
        DataType::Fp16 => {
            numbers.for_each(|number| data.put_slice(&f16::from_f64(number).to_le_bytes()));
        }
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
    fn rows_convert_to_the_type_and_shape_of_the_model() {
        let pixels = Tensor::new(DataType::Uint8, [2, 2, 2].as_slice(), vec![0, 1, 2, 3, 4, 5, 6, 7].into());
        let rows = Rows::new(&signature(&[-1, 1, 2, 2], DataType::Fp32), &[pixels.unwrap()]).unwrap();
        let inputs = rows.slice(1, 1).unwrap();
        assert_eq!(inputs[0].shape(), [1, 1, 2, 2]);
        assert_eq!(inputs[0].as_f32().unwrap().as_ref(), [4.0, 5.0, 6.0, 7.0]);
        assert_eq!(rows.range(0), Some((0.0, 7.0)));
    }

    #[test]
    fn only_axes_of_one_are_reshaped() {
        let rows = |shape: &[usize], wanted: &[i64]| {
            let array = Tensor::from_f32(shape, &vec![0.0; shape.iter().product()]).unwrap();
            Rows::new(&signature(wanted, DataType::Fp32), &[array])
                .map(|rows| rows.inputs().unwrap()[0].shape().to_vec())
        };
        assert_eq!(rows(&[5, 4, 4], &[-1, 1, 4, 4]), Ok(vec![5, 1, 4, 4]));
        assert_eq!(rows(&[5, 4, 4, 1], &[-1, 1, 4, 4]), Ok(vec![5, 1, 4, 4]));
        for (shape, wanted) in [
            (&[5, 4, 4, 3][..], &[-1, 3, 4, 4][..]),
            (&[5, 6], &[-1, 2, 3]),
            (&[5, 2, 3], &[-1, 6]),
            (&[5, 3, 5], &[-1, 3, 4]),
        ] {
            let refused = rows(shape, wanted).unwrap_err().to_string();
            let both = format!("takes rows of {:?}, the data has rows of {:?}", &wanted[1..], &shape[1..]);
            assert!(refused.contains(&both), "{refused}");
        }
        let none = Rows::new(&signature(&[-1, 2], DataType::Fp32), &[]).unwrap_err().to_string();
        assert!(none.contains("has 1 inputs (x), got 0 arrays"), "{none}");
    }

    #[test]
    fn rows_that_are_not_finite_are_rejected() {
        for bad in [f32::NAN, f32::INFINITY] {
            let array = Tensor::from_f32([3, 2].as_slice(), &[0.0, 1.0, 2.0, 3.0, bad, 5.0]).unwrap();
            let refused = Rows::new(&signature(&[-1, 2], DataType::Fp32), std::slice::from_ref(&array));
            let half = Rows::new(&signature(&[-1, 2], DataType::Fp16), std::slice::from_ref(&array));
            for refused in [refused, half] {
                let said = refused.unwrap_err().to_string();
                assert!(said.starts_with("input 'x' has NaN or infinity in row 2"), "{said}");
            }
        }
    }

    #[test]
    fn copies_of_rows_are_found() {
        let array = |values: &[f32]| Tensor::from_f32([values.len() / 2, 2].as_slice(), values).unwrap();
        let rows =
            |values: &[f32]| Rows::new(&signature(&[-1, 2], DataType::Fp32), &[array(values)]).unwrap();
        let given = rows(&[1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 1.0, 4.0, 3.0, 4.0]);
        assert_eq!(given.distinct(false), [0, 1, 3]);
        assert_eq!(given.distinct(true), [2, 3, 4]);
        assert_eq!(given.outside(&rows(&[3.0, 4.0, 9.0, 9.0])), [0, 2, 3]);
    }

    #[test]
    fn choice_of_rows_shares_their_memory() {
        let array = Tensor::from_f32([4, 2].as_slice(), &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
        let all = Rows::new(&signature(&[-1, 2], DataType::Fp32), &[array]).unwrap();
        let chosen = all.select(&[3, 0, 2]).unwrap().select(&[2, 0]).unwrap();
        assert_eq!((chosen.len(), chosen.bytes()), (2, 8));
        assert_eq!(chosen.inputs[0].data().as_ptr(), all.inputs[0].data().as_ptr());
        let both = chosen.slice(0, 2).unwrap();
        assert_eq!(both[0].as_f32().unwrap().as_ref(), [4.0, 5.0, 6.0, 7.0]);
        assert_eq!(chosen.range(0), Some((4.0, 7.0)));
        assert_eq!((chosen.outside(&all), all.outside(&chosen)), (vec![], vec![0, 1]));
        let packed = chosen.first(9).unwrap();
        assert_eq!((packed.len(), packed.places.is_none()), (2, true));
        for refused in [chosen.select(&[]).err(), chosen.select(&[2]).err(), chosen.slice(1, 2).err()] {
            assert!(matches!(refused, Some(Error::Tensor(_))), "{refused:?}");
        }
    }

    #[test]
    fn rows_are_rejected_when_they_hold_no_element() {
        let many = 1 << 60;
        for shape in [&[many, 0][..], &[0, many, many], &[many, many, 0], &[0]] {
            let Ok(array) = Tensor::new(DataType::Fp32, shape, Default::default()) else { continue };
            for wanted in [&[-1, 0][..], &[-1, -1], &[-1, i64::MAX, i64::MAX]] {
                let rows = Rows::new(&signature(wanted, DataType::Fp32), std::slice::from_ref(&array));
                assert!(rows.unwrap_err().to_string().contains("no elements"), "{shape:?} for {wanted:?}");
            }
        }
        let array = Tensor::from_f32([2, 3].as_slice(), &[0.0; 6]).unwrap();
        let huge = Rows::new(&signature(&[-1, i64::MAX, i64::MAX], DataType::Fp32), &[array]).unwrap_err();
        assert!(huge.to_string().contains("takes rows of"), "{huge}");
    }

    #[test]
    fn halved_keeps_the_first_half_of_varying_axes() {
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
    fn rows_run_one_at_a_time_when_one_input_has_one_row() {
        let declared = |name: &str, shape: &[i64]| Declared {
            name: name.into(),
            datatype: DataType::Fp32,
            shape: shape.to_vec(),
        };
        let rows = |batch: i64| {
            let inputs = vec![declared("x", &[-1, 2]), declared("state", &[batch, 3])];
            let signature = Signature { inputs, outputs: vec![declared("y", &[-1, 2])] };
            let [x, state] =
                [2, 3].map(|width| Tensor::from_f32([4, width].as_slice(), &vec![0.0; 4 * width]).unwrap());
            Rows::new(&signature, &[x, state]).map(|rows| (rows.is_batched(), rows.len()))
        };
        assert_eq!((rows(-1), rows(1)), (Ok((true, 4)), Ok((false, 4))));
        let refused = rows(3).unwrap_err().to_string();
        assert!(refused.starts_with("the first axis of input 'state' has 3 elements"), "{refused}");
    }
}
