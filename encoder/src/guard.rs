//! Keeps bad values out of groups.
//!
//! One NaN in a query would spoil every reconstruction of its group, and a value of 1e31 would drown the other
//! queries in rounding errors. [`Guard::passes`] finds such a query, which is then served alone.
#![allow(unsafe_code)] // only in code of `multiversion`: a call guarded by its own run-time feature detection

use multiversion::multiversion;

/// The range of values that may enter a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    low: f32,
    high: f32,
}

impl Default for Guard {
    /// Passes all finite values.
    fn default() -> Self {
        Self { low: f32::MIN, high: f32::MAX }
    }
}

impl Guard {
    /// Passes the observed range `low..=high` of a model's inputs, widened on each side by `margin` times its width.
    /// A bound that is not finite excludes only NaN and infinities.
    pub fn around(low: f32, high: f32, margin: f32) -> Self {
        let slack = (high - low) * margin;
        let (low, high) = (low - slack, high + slack);
        Self {
            low: if low.is_finite() { low } else { f32::MIN },
            high: if high.is_finite() { high } else { f32::MAX },
        }
    }

    /// Whether a query may enter a group: whether each value is in the range.
    pub fn passes(&self, query: &[f32]) -> bool {
        all_within(query, self.low, self.high)
    }
}

/// Two comparisons suffice, because bounds are finite and comparisons with NaN are false. A block has no branch
/// inside, so it vectorises; the branch after each block ends the check early on a bad query.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2", "x86_64+avx"))]
fn all_within(values: &[f32], low: f32, high: f32) -> bool {
    values.chunks(1024).all(|block| {
        let outside = block.iter().map(|value| u32::from(!((*value >= low) & (*value <= high))));
        outside.fold(0, |any, outside| any | outside) == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_value_is_found_at_every_index() {
        let guard = Guard::around(-1.0, 3.0, 0.5);
        for len in [1, 2, 31, 1024, 1025, 5000] {
            let mut query = vec![0.5; len];
            assert!(guard.passes(&query));
            for index in [0, len / 2, len - 1] {
                for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 5.1, -3.1] {
                    query[index] = value;
                    assert!(!guard.passes(&query), "{value} at {index}");
                }
                query[index] = 5.0;
                assert!(guard.passes(&query), "the bound itself must pass");
                query[index] = 0.5;
            }
        }
    }

    #[test]
    fn finite_values_pass_without_a_range() {
        for guard in [Guard::default(), Guard::around(f32::MIN, f32::MAX, 1.0)] {
            assert!(guard.passes(&[f32::MAX, f32::MIN, 0.0, f32::MIN_POSITIVE]));
            assert!(!guard.passes(&[1.0, f32::INFINITY]));
        }
    }
}
