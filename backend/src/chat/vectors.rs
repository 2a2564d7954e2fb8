//! Made-up embeddings: unit vectors that are a pure function of the input, as numbers or as base64.

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
    Value::from(in_base64(&bytes))
}

fn in_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let shown = digit <= group.len();
            let value = (bits >> (18 - 6 * digit)) as usize % 64;
            text.push(if shown { char::from(DIGITS[value]) } else { '=' });
        }
    }
    text
}

const VECTOR: u64 = 0x7EC7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_its_padding() {
        let texts = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| in_base64(text.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
        assert_eq!(in_base64(&[255, 254, 253]), "//79");
    }

    #[test]
    fn vectors_have_unit_length_and_follow_the_seed() {
        let norm = |vector: &[f32]| vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        assert!((norm(&unit(3, 256)) - 1.0).abs() < 1e-5);
        assert_eq!(unit(3, 8), unit(3, 8));
        assert_ne!(unit(3, 8), unit(4, 8));
    }
}
