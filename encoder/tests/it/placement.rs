//! Golden vectors of the encoders.

use parm_encoder::{CodeSpec, Element, Error, Input, Kind, Members};

use crate::support::Group;

fn encode(spec: &CodeSpec, dims: &[usize], queries: &[Option<&[f32]>]) -> Vec<Vec<f32>> {
    Group::of(spec, dims, |slot| queries[slot].map(<[f32]>::to_vec)).parities
}

#[test]
fn rgb_sum_adds_equal_channels() {
    let image = |red: f32, green: f32, blue: f32| [[red; 4], [green; 4], [blue; 4]].concat();
    let (a, b) = (image(1.0, 10.0, 100.0), image(2.0, 20.0, 200.0));
    let sum = encode(&CodeSpec::new(Kind::Sum, 2, 1), &[3, 2, 2], &[Some(&a), Some(&b)]);
    assert_eq!(sum, [image(3.0, 30.0, 300.0)]);
    let last = |red: f32, green: f32, blue: f32| [red, green, blue].repeat(4);
    let (a, b) = (last(1.0, 10.0, 100.0), last(2.0, 20.0, 200.0));
    let sum = encode(&CodeSpec::new(Kind::Sum, 2, 1), &[2, 2, 3], &[Some(&a), Some(&b)]);
    assert_eq!(sum, [last(3.0, 30.0, 300.0)]);
}

#[test]
fn blank_slot_adds_nothing_to_a_sum() {
    let query = [1.5_f32, -2.0];
    let sum = encode(&CodeSpec::new(Kind::Sum, 3, 1), &[2], &[None, Some(&query), Some(&query)]);
    assert_eq!(sum, [[3.0, -4.0]]);
}

#[test]
fn weighted_sums_use_the_designed_coefficients() {
    let parities =
        encode(&CodeSpec::new(Kind::Weighted, 2, 2), &[2], &[Some(&[1.0, 2.0]), Some(&[10.0, 20.0])]);
    let second = [0, 1].map(|at| 1.216 * [1.0, 2.0][at] - 0.721 * [10.0, 20.0][at]);
    assert_eq!(parities, [[11.0, 22.0], second]);
}

#[test]
fn slots_are_concatenated_on_the_channel_axis() {
    let (a, b) = ([1.0_f32, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
    let first = CodeSpec::new(Kind::Slots, 2, 1);
    assert_eq!(encode(&first, &[2, 2], &[Some(&a), Some(&b)]), [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]]);
    assert_eq!(encode(&first, &[2, 2], &[None, Some(&b)]), [[0.0, 0.0, 0.0, 0.0, 5.0, 6.0, 7.0, 8.0]]);
}

#[test]
fn tiles_are_area_averages_in_grid_order() {
    let a: Vec<f32> = (0..16).map(|value| value as f32).collect();
    let b: Vec<f32> = a.iter().map(|value| value + 100.0).collect();
    let pair = encode(&CodeSpec::new(Kind::Tiles, 2, 1), &[1, 4, 4], &[Some(&a), Some(&b)]);
    #[rustfmt::skip]
    assert_eq!(pair, [[
        0.5, 2.5, 100.5, 102.5,
        4.5, 6.5, 104.5, 106.5,
        8.5, 10.5, 108.5, 110.5,
        12.5, 14.5, 112.5, 114.5,
    ]]);
    let square = encode(&CodeSpec::new(Kind::Tiles, 4, 1), &[1, 4, 4], &[Some(&a), None, None, Some(&b)]);
    #[rustfmt::skip]
    assert_eq!(square, [[
        2.5, 4.5, 0.0, 0.0,
        10.5, 12.5, 0.0, 0.0,
        0.0, 0.0, 102.5, 104.5,
        0.0, 0.0, 110.5, 112.5,
    ]]);
}

#[test]
fn uneven_tiles_weight_the_pixels_at_their_edges() {
    let spec = CodeSpec::new(Kind::Tiles, 2, 1);
    // Five columns: the left tile has two of 2.5 pixels each, the right one three of 5/3 pixels each.
    let row = [0.0_f32, 10.0, 20.0, 30.0, 40.0];
    let out = encode(&spec, &[1, 1, 5], &[Some(&row), Some(&row)]);
    let expect = [8.0, 32.0, 4.0, 20.0, 36.0];
    assert!(out[0].iter().zip(expect).all(|(a, b)| (a - b).abs() < 1e-5), "{out:?}");
    // Four queries have two rows of tiles, which are averaged in the same way.
    let (rows, spec) = (row.map(|value| [value; 2]).concat(), CodeSpec::new(Kind::Tiles, 4, 1));
    let out = encode(&spec, &[1, 5, 2], &[Some(&rows[..]); 4]);
    let expect = expect.map(|value| [value; 2]).concat();
    assert!(out[0].iter().zip(expect).all(|(a, b)| (a - b).abs() < 1e-5), "{out:?}");
}

#[test]
fn integers_are_copied_but_never_added() {
    let input = Input { dims: &[3], element: Element::Bytes(2) };
    let queries: [Option<&[u8]>; 2] = [Some(&[1, 0, 2, 0, 3, 0]), Some(&[4, 0, 5, 0, 6, 0])];
    let members = Members { input, queries: &queries };
    let slots = CodeSpec::new(Kind::Slots, 2, 1).build().expect("valid");
    let mut wide = [9_u8; 12];
    slots.encode_bytes(members, &mut [&mut wide]).expect("slots copy bytes");
    assert_eq!(wide, [1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0]);
    for kind in [Kind::Sum, Kind::Weighted, Kind::Mds, Kind::Tiles, Kind::Berrut] {
        let code = CodeSpec::new(kind, 3, 1).build().expect("valid");
        let refusal = Error::NotArithmetic { kind, bytes: 2 };
        assert_eq!(code.parity_dims(input), Err(refusal.clone()));
        assert_eq!(code.encode_bytes(members, &mut [&mut wide]), Err(refusal));
    }
}

#[test]
fn berrut_matrix_equals_one_computed_by_hand() {
    // With a one-dimensional group 1, 0, 0 the coded queries are the first column of the encoding matrix.
    let spec = CodeSpec::new(Kind::Berrut, 3, 1);
    let actual = encode(&spec, &[1], &[Some(&[1.0]), Some(&[0.0]), Some(&[0.0])]).concat();
    // Nodes sqrt(3)/2, 0, -sqrt(3)/2 and points 1, 1/2, -1/2, -1.
    let half = 3.0_f64.sqrt() / 2.0;
    let at = |z: f64| {
        let terms = [1.0 / (z - half), -1.0 / z, 1.0 / (z + half)];
        terms[0] / terms.iter().sum::<f64>()
    };
    let expect = [at(1.0), at(0.5), at(-0.5), at(-1.0)];
    let close = actual.iter().zip(expect).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5);
    assert!(close, "{actual:?} instead of {expect:?}");
}
