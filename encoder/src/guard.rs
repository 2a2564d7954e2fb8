//! The check that keeps bad values out of groups: one NaN in one query would spoil every reconstruction of its group,
//! and a value of 1e31 would drown its neighbours in rounding. Such a query is served alone.
#![allow(unsafe_code)] // only what `multiversion` generates: a call guarded by its own run-time feature detection

use multiversion::multiversion;

/// The values that may be mixed with others'.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    low: f32,
    high: f32,
}

/// Why a query must be served alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Suspect {
    /// NaN or an infinity.
    NotFinite {
        /// Where the first one is.
        index: usize,
    },
    /// Outside what the model has been seen to take.
    OutOfRange {
        /// Where the first one is.
        index: usize,
        /// The value.
        value: f32,
    },
}

impl Default for Guard {
    /// Everything finite passes.
    fn default() -> Self {
        Self { low: f32::MIN, high: f32::MAX }
    }
}

impl Guard {
    /// Passes the range `low..=high` that a model's inputs were observed in, widened by `margin` times its width on
    /// either side. Bounds that are not finite bound nothing but NaN and infinities.
    pub fn around(low: f32, high: f32, margin: f32) -> Self {
        let slack = (high - low) * margin;
        let (low, high) = (low - slack, high + slack);
        Self {
            low: if low.is_finite() { low } else { f32::MIN },
            high: if high.is_finite() { high } else { f32::MAX },
        }
    }

    /// Looks at every value once; `None` if the query may be mixed.
    pub fn check(&self, query: &[f32]) -> Option<Suspect> {
        if all_within(query, self.low, self.high) { None } else { self.check_naive(query) }
    }

    /// The naive twin, which also says where.
    pub fn check_naive(&self, query: &[f32]) -> Option<Suspect> {
        let index = query.iter().position(|value| !(self.low..=self.high).contains(value))?;
        let value = query[index];
        Some(if value.is_finite() {
            Suspect::OutOfRange { index, value }
        } else {
            Suspect::NotFinite { index }
        })
    }
}

/// Comparisons with NaN are false, and bounds are finite, so two comparisons check everything. Blocks without a branch
/// inside, a branch after each: vectors inside, and an early end on a bad query.
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
    fn a_bad_value_is_found_wherever_it_is() {
        let guard = Guard::around(-1.0, 3.0, 0.5);
        for len in [1, 2, 31, 1024, 1025, 5000] {
            let mut query = vec![0.5; len];
            assert_eq!(guard.check(&query), None);
            for index in [0, len / 2, len - 1] {
                for (value, expect) in [
                    (f32::NAN, Suspect::NotFinite { index }),
                    (f32::INFINITY, Suspect::NotFinite { index }),
                    (f32::NEG_INFINITY, Suspect::NotFinite { index }),
                    (5.1, Suspect::OutOfRange { index, value: 5.1 }),
                    (-3.1, Suspect::OutOfRange { index, value: -3.1 }),
                ] {
                    query[index] = value;
                    assert_eq!(guard.check(&query), Some(expect));
                    assert_eq!(guard.check_naive(&query), Some(expect));
                }
                query[index] = 5.0;
                assert_eq!(guard.check(&query), None, "the bound itself passes");
                query[index] = 0.5;
            }
        }
    }

    #[test]
    fn without_a_range_everything_finite_passes() {
        for guard in [Guard::default(), Guard::around(f32::MIN, f32::MAX, 1.0)] {
            assert_eq!(guard.check(&[f32::MAX, f32::MIN, 0.0, f32::MIN_POSITIVE]), None);
            assert_eq!(guard.check(&[1.0, f32::INFINITY]), Some(Suspect::NotFinite { index: 1 }));
        }
    }
}
