//! Rows with several inputs, joined into one row of numbers.

use crate::Array;

/// The shapes of the inputs that are joined in each row; empty if a row is the model's only input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts(Vec<Vec<usize>>);

impl Parts {
    /// Joins the rows of several inputs; `None` if their numbers of rows differ.
    pub fn join(inputs: Vec<Array<f32>>) -> Option<(Array<f32>, Self)> {
        let inputs = match <[Array<f32>; 1]>::try_from(inputs) {
            Ok([only]) => return Some((only, Self::default())),
            Err(inputs) => inputs,
        };
        let rows = *inputs.first()?.shape().first()?;
        if inputs.iter().any(|input| input.shape().first() != Some(&rows)) {
            return None;
        }
        let parts: Vec<Vec<usize>> = inputs.iter().map(|input| input.shape()[1..].to_vec()).collect();
        let widths: Vec<usize> = parts.iter().map(|dims| dims.iter().product()).collect();
        let mut joined = Vec::with_capacity(rows * widths.iter().sum::<usize>());
        for row in 0..rows {
            for (input, width) in inputs.iter().zip(&widths) {
                joined.extend_from_slice(&input.data()[row * width..][..*width]);
            }
        }
        Some((Array::new(vec![rows, widths.iter().sum()], joined)?, Self(parts)))
    }

    /// Splits rows into inputs; `None` if a row has another length.
    pub fn split(&self, rows: Array<f32>) -> Option<Vec<Array<f32>>> {
        if self.0.is_empty() {
            return Some(vec![rows]);
        }
        let (&count, dims) = rows.shape().split_first()?;
        let whole = dims.iter().product::<usize>();
        if whole != self.0.iter().map(|dims| dims.iter().product::<usize>()).sum::<usize>() {
            return None;
        }
        let mut start = 0;
        let mut take = |dims: &Vec<usize>| {
            let width = dims.iter().product::<usize>();
            let part =
                (0..count).flat_map(|row| &rows.data()[row * whole + start..][..width]).copied().collect();
            start += width;
            let shape = std::iter::once(count).chain(dims.iter().copied()).collect();
            Array::new(shape, part).expect("the parts of every row")
        };
        Some(self.0.iter().map(&mut take).collect())
    }

    /// The smallest and the largest number of each input.
    pub fn ranges(&self, rows: &Array<f32>) -> Vec<(f32, f32)> {
        let whole: [Vec<usize>; 1] = [rows.shape().get(1..).unwrap_or_default().to_vec()];
        let parts = if self.0.is_empty() { &whole[..] } else { &self.0[..] };
        let widths: Vec<usize> = parts.iter().map(|dims| dims.iter().product()).collect();
        let mut ranges = vec![(f32::INFINITY, f32::NEG_INFINITY); widths.len()];
        for row in rows.data().chunks_exact(widths.iter().sum::<usize>().max(1)) {
            let mut rest = row;
            for ((low, high), width) in ranges.iter_mut().zip(&widths) {
                let (own, others) = rest.split_at(*width);
                (*low, *high) =
                    own.iter().fold((*low, *high), |(low, high), &value| (low.min(value), high.max(value)));
                rest = others;
            }
        }
        ranges
    }

    /// The number of inputs.
    pub fn count(&self) -> usize {
        self.0.len().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(shape: &[usize], from: f32) -> Array<f32> {
        let count = shape.iter().product::<usize>();
        Array::new(shape.to_vec(), (0..count).map(|at| from + at as f32).collect()).unwrap()
    }

    #[test]
    fn split_restores_joined_inputs() {
        let inputs = vec![array(&[3, 2], 0.0), array(&[3, 1, 2], 100.0), array(&[3], 200.0)];
        let (rows, parts) = Parts::join(inputs.clone()).unwrap();
        assert_eq!(rows.shape(), [3, 5]);
        assert_eq!(rows.range(1, 2).data(), [2.0, 3.0, 102.0, 103.0, 201.0]);
        assert_eq!(parts.ranges(&rows), [(0.0, 5.0), (100.0, 105.0), (200.0, 202.0)]);
        assert_eq!((parts.split(rows), parts.count()), (Some(inputs), 3));
    }

    #[test]
    fn join_keeps_one_input_and_rejects_unequal_ones() {
        let only = array(&[2, 1, 3], 0.0);
        let (rows, parts) = Parts::join(vec![only.clone()]).unwrap();
        assert_eq!((rows.shape(), parts.count()), (&[2, 1, 3][..], 1));
        assert_eq!(parts.ranges(&rows), [(0.0, 5.0)]);
        assert_eq!(parts.split(rows), Some(vec![only]));
        assert!(Parts::join(vec![array(&[2, 1], 0.0), array(&[3, 1], 0.0)]).is_none());
        assert!(Parts::join(Vec::new()).is_none());
        let (_, parts) = Parts::join(vec![array(&[2, 1], 0.0), array(&[2, 3], 0.0)]).unwrap();
        assert!(parts.split(array(&[2, 3], 0.0)).is_none(), "a row is four numbers long");
    }
}
