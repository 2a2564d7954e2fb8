//! Made-up embeddings: unit vectors that are a pure function of the input, as numbers or as base64.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parm_workload::Random;
use serde_json::Value;

/// Returns the vector of a seed.
pub(super) fn unit(seed: u64, dimensions: usize) -> Vec<f32> {
    let mut draw = Random::of(seed, [VECTOR]);
    let values: Vec<f64> = (0..dimensions).map(|_| draw.normal()).collect();
    let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
    values.into_iter().map(|value| (value / norm) as f32).collect()
}

/// Returns the vector as JSON.
pub(super) fn encoded(vector: &[f32], base64: bool) -> Value {
    if !base64 {
        return vector.iter().map(|value| Value::from(*value)).collect();
    }
    let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
    Value::from(BASE64_STANDARD.encode(bytes))
}

const VECTOR: u64 = 0x7EC7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_unit_length_and_follow_the_seed() {
        let norm = |vector: &[f32]| vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        assert!((norm(&unit(3, 256)) - 1.0).abs() < 1e-5);
        assert_eq!(unit(3, 8), unit(3, 8));
        assert_ne!(unit(3, 8), unit(4, 8));
    }
}
