//! Fast paths against their reference implementations, to the last bit if the order of additions is the same.

use parm_encoder::{CodeSpec, Grid, Input, Kind, Layout, Members, Tiles, Workspace, kernel};
use parm_random::Random;
use proptest::prelude::*;

use crate::support::agree;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fast_sums_equal_reference_sums_bitwise(
        count in 0_usize..=20, len in 0_usize..3000, outputs in 1_usize..4, seed in any::<u64>(),
    ) {
        let mut numbers = Random::new(seed);
        let terms: Vec<Vec<f32>> = (0..count).map(|_| numbers.uniforms(1.0, len)).collect();
        let terms: Vec<&[f32]> = terms.iter().map(Vec::as_slice).collect();
        let weights: Vec<Vec<f32>> = (0..outputs).map(|_| numbers.uniforms(1.0, count)).collect();
        let naive = |weights: &[f32]| {
            let mut out = vec![f32::NAN; len];
            kernel::combine_naive(weights, &terms, &mut out);
            out
        };
        let mut one = vec![f32::NAN; len];
        kernel::combine(&weights[0], &terms, &mut one);
        prop_assert_eq!(&one, &naive(&weights[0]));
        let mut many = vec![vec![f32::NAN; len]; outputs];
        let mut outs: Vec<&mut [f32]> = many.iter_mut().map(Vec::as_mut_slice).collect();
        kernel::combine_each(|output| &weights[output], &terms, &mut outs);
        for (output, values) in many.iter().enumerate() {
            prop_assert_eq!(values, &naive(&weights[output]));
        }
    }

    #[test]
    fn fast_tiles_equal_reference_tiles(
        k in 1_usize..=6, rows in 1_usize..=3, columns in 1_usize..=3, height in 3_usize..20, width in 3_usize..20,
        last in any::<bool>(), seed in any::<u64>(),
    ) {
        let grid = Grid { rows, columns };
        prop_assume!(rows * columns >= k);
        let layout = if last { Layout::ChannelsLast } else { Layout::ChannelsFirst };
        let spec = CodeSpec { grid: Some(grid), layout: Some(layout), ..CodeSpec::new(Kind::Tiles, k, 1) };
        let dims = if last { [height, width, 3] } else { [3, height, width] };
        let tiles = Tiles::new(&spec).expect("valid");
        let mut numbers = Random::new(seed);
        let queries: Vec<Vec<f32>> = (0..k).map(|_| numbers.uniforms(1.0, height * width * 3)).collect();
        let queries: Vec<Option<&[f32]>> =
            queries.iter().enumerate().map(|(i, q)| (i == 0 || seed >> i & 1 == 0).then_some(q.as_slice())).collect();
        let members = Members { input: Input::floats(&dims), queries: &queries };
        let mut fast = vec![f32::NAN; height * width * 3];
        let mut naive = fast.clone();
        let code = spec.build().expect("valid");
        code.encode(members, &mut [&mut fast], &mut Workspace::new()).expect("encodes");
        tiles.encode_naive(members, &mut naive).expect("encodes");
        prop_assert!(agree(&fast, &naive, 1e-5), "{fast:?} instead of {naive:?}");
    }
}
