//! Tensors in host memory: inputs, outputs, and the shapes and indices of graphs.
//!
//! Shape arithmetic (`Shape`, `Gather`, `Concat`, `Reshape`) runs on a few integers, too few for a device. One
//! function, [`Array::rearrange`], serves every operator that only moves elements.

/// A dense tensor in row-major order. No dimensions: a scalar.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T> {
    shape: Vec<usize>,
    data: Vec<T>,
}

impl<T: Clone> Array<T> {
    /// Wraps `data`; `None` unless its length matches `shape`.
    pub fn new(shape: Vec<usize>, data: Vec<T>) -> Option<Self> {
        (count(&shape) == data.len()).then_some(Self { shape, data })
    }

    /// A tensor of one dimension.
    pub fn vector(data: Vec<T>) -> Self {
        Self { shape: vec![data.len()], data }
    }

    /// A tensor without dimensions.
    pub fn scalar(value: T) -> Self {
        Self { shape: Vec::new(), data: vec![value] }
    }

    /// A tensor of one repeated value.
    pub fn full(shape: Vec<usize>, value: T) -> Self {
        let data = vec![value; count(&shape)];
        Self { shape, data }
    }

    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements in row-major order.
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// Elements in row-major order, mutable.
    pub fn data_mut(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// Elements in row-major order, by value.
    pub fn into_data(self) -> Vec<T> {
        self.data
    }

    /// The same elements with other dimensions; `None` if their numbers differ.
    pub fn reshape(self, shape: Vec<usize>) -> Option<Self> {
        Self::new(shape, self.data)
    }

    /// The given entries of the first dimension, in the given order.
    pub fn rows(&self, rows: &[usize]) -> Self {
        let size = count(&self.shape[1..]);
        let mut data = Vec::with_capacity(rows.len() * size);
        rows.iter().for_each(|&row| data.extend_from_slice(&self.data[row * size..][..size]));
        Self { shape: self.with_first(rows.len()), data }
    }

    /// Entries `from..to` of the first dimension.
    pub fn range(&self, from: usize, to: usize) -> Self {
        let size = count(&self.shape[1..]);
        Self { shape: self.with_first(to - from), data: self.data[from * size..to * size].to_vec() }
    }

    fn with_first(&self, size: usize) -> Vec<usize> {
        std::iter::once(size).chain(self.shape[1..].iter().copied()).collect()
    }

    /// Applies a function to every element.
    pub fn map<U: Clone>(&self, change: impl Fn(&T) -> U) -> Array<U> {
        Array { shape: self.shape.clone(), data: self.data.iter().map(change).collect() }
    }

    /// A tensor of dimensions `shape` whose element at given coordinates is this tensor's element at
    /// `source(coordinates)`.
    pub(crate) fn rearrange(&self, shape: &[usize], source: impl Fn(&[usize], &mut [usize])) -> Self {
        let strides = strides(&self.shape);
        let mut from = vec![0; self.shape.len()];
        let mut data = Vec::with_capacity(count(shape));
        for_each_coordinate(shape, |at| {
            source(at, &mut from);
            let offset: usize = from.iter().zip(&strides).map(|(index, stride)| index * stride).sum();
            data.push(self.data[offset].clone());
        });
        Self { shape: shape.into(), data }
    }

    /// Repeats dimensions of size one, and adds leading ones, up to `shape`, which must be compatible.
    pub(crate) fn expand(&self, shape: &[usize]) -> Self {
        let added = shape.len() - self.shape.len();
        self.rearrange(shape, |at, from| {
            for (axis, index) in from.iter_mut().enumerate() {
                *index = if self.shape[axis] == 1 { 0 } else { at[added + axis] };
            }
        })
    }

    /// Combines two tensors element by element after expanding both to `shape`.
    pub(crate) fn zip<U: Clone>(
        &self,
        other: &Self,
        shape: &[usize],
        combine: impl Fn(&T, &T) -> U,
    ) -> Array<U> {
        let (left, right) = (self.expand(shape), other.expand(shape));
        let data = left.data.iter().zip(&right.data).map(|(a, b)| combine(a, b)).collect();
        Array { shape: shape.into(), data }
    }
}

/// Number of elements. An overflow from a file's sizes gives a number that no tensor has.
pub(crate) fn count(shape: &[usize]) -> usize {
    shape.iter().fold(1, |count, &size| usize::saturating_mul(count, size))
}

/// The dimensions of two tensors combined element by element; `None` if they do not fit.
pub(crate) fn broadcast(left: &[usize], right: &[usize]) -> Option<Vec<usize>> {
    let rank = left.len().max(right.len());
    let dim = |shape: &[usize], axis: usize| match (axis + shape.len()).checked_sub(rank) {
        Some(own) => shape[own],
        None => 1,
    };
    let pairs = (0..rank).map(|axis| (dim(left, axis), dim(right, axis)));
    pairs
        .map(|pair| match pair {
            (a, b) if a == b => Some(a),
            (1, b) => Some(b),
            (a, 1) => Some(a),
            _ => None,
        })
        .collect()
}

fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

fn for_each_coordinate(shape: &[usize], mut visit: impl FnMut(&[usize])) {
    let mut at = vec![0; shape.len()];
    for _ in 0..count(shape) {
        visit(&at);
        for axis in (0..shape.len()).rev() {
            at[axis] += 1;
            if at[axis] < shape[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
}
