//! Checks the code without training: constants exactly, smooth curves closely, errors for too few outputs.

use parm_encoder::{CodeSpec, Error, Kind, Set};

use crate::support::{Group, agree, decode, subsets};

fn spec(k: usize, r: usize) -> CodeSpec {
    CodeSpec::new(Kind::Berrut, k, r)
}

#[test]
fn equal_queries_are_exact_from_every_set_of_k_outputs() {
    for k in 2..=8 {
        let group = group_of(&spec(k, 2), |_| vec![3.0, -2.0, 0.5]);
        for returned in subsets(k + 2) {
            let result = decode(&group, &blank(k, 3), &group.parities, Set::EMPTY, returned, k - 1);
            if returned.len() >= k {
                let actual = result.expect("enough outputs");
                assert!(agree(&actual, &[3.0, -2.0, 0.5], 1e-5), "k {k} {returned:?}: {actual:?}");
            } else {
                let parities = returned.len();
                assert_eq!(result, Err(Error::Unrecoverable { slot: k - 1, missing: k, parities }));
            }
        }
    }
}

#[test]
fn error_of_smooth_curves_falls_with_more_outputs() {
    let error = |r: usize| {
        let truth = |slot: usize| vec![(slot as f32 * 0.3).sin(), (slot as f32 * 0.2).cos()];
        let group = group_of(&spec(8, r), truth);
        let all = Set::first(8 + r);
        let decoded = |slot| decode(&group, &blank(8, 2), &group.parities, Set::EMPTY, all, slot);
        let errors = (0..8).flat_map(|slot| {
            let actual = decoded(slot).expect("full");
            actual.into_iter().zip(truth(slot)).map(|(a, b)| (a - b).abs())
        });
        errors.fold(0.0_f32, f32::max)
    };
    let (few, many) = (error(1), error(24));
    assert!(few < 0.2, "error {few} with 9 outputs");
    assert!(many < few / 2.0, "error {many} with 32 outputs, {few} with 9");
}

/// A full group with these queries, for a model that returns its input.
fn group_of(spec: &CodeSpec, query: impl Fn(usize) -> Vec<f32>) -> Group {
    Group::of(spec, &[query(0).len()], |slot| Some(query(slot)))
}

/// Predictions that never arrive: the code sends no query unchanged.
fn blank(k: usize, len: usize) -> Vec<Vec<f32>> {
    vec![vec![0.0; len]; k]
}
