//! Fast sums against plain loops, to the last bit: the order of additions is the same.

use parm_encoder::kernel;
use parm_random::Random;
use proptest::prelude::*;

/// The weighted sums of terms, one element after the other.
fn sums(weights: &[f32], terms: &[Vec<f32>], len: usize) -> Vec<f32> {
    let products = |at: usize| weights.iter().zip(terms).map(move |(weight, term)| weight * term[at]);
    (0..len).map(|at| products(at).reduce(|sum, product| sum + product).unwrap_or(0.0)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fast_sums_equal_plain_sums_bitwise(
        count in 0_usize..=20, len in 0_usize..3000, outputs in 1_usize..4, seed in any::<u64>(),
    ) {
        let mut numbers = Random::new(seed);
        let terms: Vec<Vec<f32>> = (0..count).map(|_| numbers.uniforms(1.0, len)).collect();
        let slices: Vec<&[f32]> = terms.iter().map(Vec::as_slice).collect();
        let weights: Vec<Vec<f32>> = (0..outputs).map(|_| numbers.uniforms(1.0, count)).collect();
        let mut many = vec![vec![f32::NAN; len]; outputs];
        let mut outs: Vec<&mut [f32]> = many.iter_mut().map(Vec::as_mut_slice).collect();
        kernel::combine(|output| &weights[output], &slices, &mut outs);
        for (output, values) in many.iter().enumerate() {
            prop_assert_eq!(values, &sums(&weights[output], &terms, len));
        }
    }
}
