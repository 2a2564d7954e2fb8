//! Selects the queries that a code may mix with others.
//!
//! A code adds queries up, so one NaN or one extreme value would spoil the whole group. Such a query is served alone.
//! The bundle defines the plausible range with the range of every input in training. Without a bundle it is learned
//! from queries: the usual magnitude is followed by a few percent per query, so no client can stretch it at will, and
//! values of many times the usual are excluded. An absolute bound always holds.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parm_encoder::guard::Guard;
use parm_parity_models::bundle;
use parm_protocol::{DataType, NamedTensor};

/// Values above this multiple of the usual maximum are excluded: their rounding in `f32` would reach the fifth digit of
/// other members.
const FAR: f32 = 64.0;
/// Maximum factors by which a query may raise and lower the usual magnitude.
const RISE: f32 = 1.1;
const FALL: f32 = 0.99;
/// Number of first queries that all update the usual magnitude; later ones do so periodically.
const FIRST: u64 = 64;
const EVERY: u64 = 16;

/// Checks of one pool's queries.
#[derive(Debug)]
pub(crate) struct Guards {
    inputs: Vec<Guarded>,
    /// Whether the code computes with values, and so accepts only floats.
    arithmetic: bool,
}

#[derive(Debug)]
enum Guarded {
    Known(Guard),
    Learned(Usual),
}

/// The usual maximum magnitude of a query.
#[derive(Debug)]
struct Usual {
    bound: f32,
    /// Bits of an `f32`; zero before the first query.
    magnitude: AtomicU32,
    seen: AtomicU64,
}

impl Guards {
    /// Creates checks of inputs in the model's order, `None` for an unknown range; `bound` is the absolute bound.
    pub(crate) fn new(ranges: &[Option<bundle::Range>], bound: f32, arithmetic: bool) -> Self {
        let guard = |range: &Option<bundle::Range>| match range {
            // Half the range more on either side: held-out data exceeds the training set's extremes.
            Some(range) => Guarded::Known(Guard::around(range.low, range.high, 0.5)),
            None => Guarded::Learned(Usual { bound, magnitude: AtomicU32::new(0), seen: AtomicU64::new(0) }),
        };
        Self { inputs: ranges.iter().map(guard).collect(), arithmetic }
    }

    /// Whether these inputs, in the model's order, may be mixed with other queries.
    pub(crate) fn pass(&self, inputs: &[NamedTensor]) -> bool {
        inputs.len() == self.inputs.len()
            && inputs.iter().zip(&self.inputs).all(|(input, guarded)| match input.tensor.datatype() {
                // Also for codes that only concatenate queries, because the parity model mixes them.
                DataType::Fp32 => guarded.passes(input.tensor.data()),
                DataType::Bytes => false,
                _ => !self.arithmetic,
            })
    }
}

impl Guarded {
    fn passes(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Known(guard) => match bytemuck::try_cast_slice(bytes) {
                Ok(values) if cfg!(target_endian = "little") => guard.passes(values),
                // Requests stay in their received bodies, at any alignment.
                _ => chunks(bytes).all(|value| guard.passes(&[value])),
            },
            Self::Learned(usual) => usual.passes(bytes),
        }
    }
}

impl Usual {
    fn passes(&self, bytes: &[u8]) -> bool {
        let usual = f32::from_bits(self.magnitude.load(Ordering::Relaxed));
        let bound = if usual == 0.0 { self.bound } else { (usual * FAR).min(self.bound) };
        let good = is_bounded(bytes, bound);
        // A query that was too large updates periodically, otherwise the usual magnitude could not grow after a change
        // of traffic.
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        if (good && seen < FIRST) || seen.is_multiple_of(EVERY) {
            self.learn(usual, largest(bytes));
        }
        good
    }

    fn learn(&self, usual: f32, largest: f32) {
        if !(largest > 0.0 && largest <= self.bound) {
            return;
        }
        let next = if usual == 0.0 { largest } else { largest.clamp(usual * FALL, usual * RISE) };
        // Concurrent updates may lose one, which does no harm.
        self.magnitude.store(next.to_bits(), Ordering::Relaxed);
    }
}

/// Works in blocks without a branch inside, so that the compiler vectorises; a NaN fails the comparison.
fn is_bounded(bytes: &[u8], bound: f32) -> bool {
    bytes.chunks(4096).all(|block| chunks(block).fold(true, |good, value| good & (value.abs() <= bound)))
}

fn largest(bytes: &[u8]) -> f32 {
    chunks(bytes).fold(0.0, |largest, value| f32::max(largest, value.abs()))
}

fn chunks(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value))
}

#[cfg(test)]
mod tests {
    use parm_protocol::Tensor;

    use super::*;

    fn inputs(values: &[f32]) -> Vec<NamedTensor> {
        vec![NamedTensor::new("x", Tensor::from_f32([1, values.len()].as_slice(), values).unwrap())]
    }

    fn learned() -> Guards {
        Guards::new(&[None], 1e6, true)
    }

    #[test]
    fn single_bad_value_at_any_place_is_found() {
        let range = bundle::Range { low: -1.0, high: 3.0 };
        for guards in [learned(), Guards::new(&[Some(range)], 1e6, true)] {
            let good = vec![1.0f32; 3000];
            assert!(guards.pass(&inputs(&good)));
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 100.0, -1e31] {
                for place in [0, 1023, 1024, 2999] {
                    let mut values = good.clone();
                    values[place] = bad;
                    assert!(!guards.pass(&inputs(&values)), "{bad} at {place}");
                }
            }
        }
    }

    #[test]
    fn unaligned_tensor_is_checked() {
        let guards = Guards::new(&[Some(bundle::Range { low: 0.0, high: 1.0 })], 1e6, true);
        for (value, passes) in [(0.5f32, true), (7.0, false), (f32::NAN, false)] {
            let mut body = vec![0u8; 1];
            body.extend([0.5f32, value].iter().flat_map(|value| value.to_le_bytes()));
            let bytes = bytes::Bytes::from(body).slice(1..);
            let tensor = Tensor::new(DataType::Fp32, [1, 2].as_slice(), bytes).unwrap();
            assert_eq!(guards.pass(&[NamedTensor::new("x", tensor)]), passes, "{value}");
        }
    }

    #[test]
    fn usual_magnitude_adapts_slowly() {
        let guards = learned();
        (0..100).for_each(|_| assert!(guards.pass(&inputs(&[1.0]))));
        // One client alone cannot make its own values usual.
        for _ in 0..200 {
            assert!(!guards.pass(&inputs(&[1e5])));
            (0..15).for_each(|_| assert!(guards.pass(&inputs(&[1.0]))));
        }
        // Traffic that changed for all clients is mixed again.
        let passed = (0..4000).filter(|_| guards.pass(&inputs(&[1e5]))).count();
        assert!(passed > 1000, "{passed}");
        assert!(!guards.pass(&inputs(&[1.1e6])), "values beyond the absolute bound must not pass");
    }

    #[test]
    fn arithmetic_codes_take_floats_and_others_fixed_size() {
        let ints = Tensor::new(DataType::Int32, [1, 1].as_slice(), vec![0u8; 4].into()).unwrap();
        let ints = [NamedTensor::new("n", ints)];
        assert!(!learned().pass(&ints));
        let moved = Guards::new(&[None], 1e6, false);
        assert!(moved.pass(&ints) && !moved.pass(&inputs(&[f32::NAN])));
        let text = Tensor::new(DataType::Bytes, [1].as_slice(), vec![0u8; 4].into()).unwrap();
        assert!(!moved.pass(&[NamedTensor::new("t", text)]));
    }
}
