//! Scales several outputs to one spread, so that training weights them equally.

use crate::learn::Teacher;
use crate::{Array, Error};

/// Relative differences below this are rounding.
const ROUNDING: f64 = 1e-5;
/// Numbers that need a larger factor are too small to learn.
const LARGEST: f32 = 1e12;

/// Factors for the numbers of a row, given each output's count of numbers. Scaled, the numbers of each output together vary
/// equally, so a mean over all numbers weights every output equally. An output that varies only by rounding is not scaled.
pub(super) fn evening(outputs: &Array<f32>, widths: &[usize]) -> Vec<f32> {
    let (rows, total) = (outputs.shape()[0].max(1) as f64, widths.iter().sum::<usize>());
    let mut factors = Vec::with_capacity(total);
    for &width in widths {
        let from = factors.len();
        let (mut variance, mut square) = (0.0, 0.0);
        for at in from..from + width {
            let column = outputs.data().iter().skip(at).step_by(total).map(|&value| f64::from(value));
            let mean = column.clone().sum::<f64>() / rows;
            variance +=
                column.clone().map(|value| (value - mean).powi(2)).sum::<f64>() / (rows * width as f64);
            square += column.map(|value| value * value).sum::<f64>() / (rows * width as f64);
        }
        let share = total as f64 / (widths.len() * width.max(1)) as f64;
        let factor = (share / variance).sqrt() as f32;
        let varies = variance > ROUNDING * ROUNDING * square && factor < LARGEST;
        let factor = if varies { factor } else { 1.0 };
        factors.extend(std::iter::repeat_n(factor, width));
    }
    factors
}

/// A teacher with scaled answers.
pub(super) struct Evened<'a> {
    pub(super) teacher: &'a dyn Teacher,
    pub(super) factors: &'a [f32],
}

impl Teacher for Evened<'_> {
    fn predict(&self, rows: &Array<f32>) -> Result<Array<f32>, Error> {
        Ok(evened(self.teacher.predict(rows)?, self.factors))
    }
}

/// Scales rows of outputs.
pub(super) fn evened(outputs: Array<f32>, factors: &[f32]) -> Array<f32> {
    let shape = outputs.shape().to_vec();
    let mut values = outputs.into_data();
    for row in values.chunks_exact_mut(factors.len().max(1)) {
        row.iter_mut().zip(factors).for_each(|(value, factor)| *value *= factor);
    }
    Array::new(shape, values).expect("as many values")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evening_weights_outputs_equally() {
        // Three numbers of about a thousand, one of about a hundredth, and a constant one.
        let rows: Vec<f32> = (0..8)
            .flat_map(|row| {
                let sign = if row % 2 == 0 { 1.0 } else { -1.0 };
                [1000.0 * sign, -1000.0 * sign, 1000.0 * sign, 0.01 * sign, 7.0]
            })
            .collect();
        let outputs = Array::new(vec![8, 5], rows).unwrap();
        let factors = evening(&outputs, &[3, 1, 1]);
        let even = evened(outputs, &factors);
        let square = |at: usize| even.data().iter().skip(at).step_by(5).map(|v| v * v).sum::<f32>() / 8.0;
        let wide: f32 = (0..3).map(square).sum();
        assert!((wide / square(3) - 1.0).abs() < 1e-3, "{wide} and {}", square(3));
        assert_eq!(factors[4], 1.0);
    }

    #[test]
    fn evening_ignores_rounding_and_tiny_numbers() {
        for (a, b) in [(1.0f32, 0.999_999_94), (0.0, 1e-40)] {
            let outputs = Array::new(vec![2, 2], vec![a, 5.0, b, -5.0]).unwrap();
            let factors = evening(&outputs, &[1, 1]);
            assert_eq!(factors[0], 1.0, "{a} and {b}");
            assert!(evened(outputs, &factors).data().iter().all(|value| value.is_finite()));
        }
    }
}
