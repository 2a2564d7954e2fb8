//! Decoding with a linear model reconstructs lost predictions exactly for every claimed loss pattern.
//!
//! Every other pattern is an error.

use parm_encoder::{Arrived, CodeSpec, Error, Head, Kind, Set};
use parm_random::Random;
use proptest::prelude::*;

use crate::support::{Affine, Group, agree, decode, exact_specs, subsets};

const DIMS: [usize; 3] = [2, 6, 7];
const OUTPUTS: usize = 5;

/// The outputs of an ideal parity model: of the parity query for codes that rely on linearity, and made from the
/// members' predictions for codes with a trained parity model.
fn parity_outputs(spec: &CodeSpec, group: &Group, model: &Affine, predictions: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let placed = matches!(spec.kind, Kind::Slots | Kind::Tiles);
    if !placed {
        return group.parities.iter().map(|parity| model.run(parity)).collect();
    }
    let head = spec.head.unwrap_or(Head::Slots);
    (0..spec.r)
        .map(|parity| match head {
            Head::Slots => predictions.concat(),
            Head::Sum => (0..OUTPUTS)
                .map(|at| {
                    let weights = spec.weights().expect("designed");
                    let terms = weights[parity].iter().zip(predictions);
                    terms.map(|(w, p)| f64::from(*w) * f64::from(p[at])).sum::<f64>() as f32
                })
                .collect(),
        })
        .collect()
}

fn check_every_pattern(spec: &CodeSpec, members: Set, seed: u64) -> Result<(), TestCaseError> {
    let mut numbers = Random::new(seed);
    let model = Affine::new(&mut numbers, DIMS.iter().product(), OUTPUTS, spec.kind == Kind::Mds);
    let query = |slot| members.contains(slot).then(|| numbers.uniforms(1.0, DIMS.iter().product()));
    let group = Group::of(spec, &DIMS, query);
    let predictions: Vec<Vec<f32>> = group
        .queries
        .iter()
        .map(|query| query.as_ref().map_or(vec![0.0; OUTPUTS], |query| model.run(query)))
        .collect();
    let parities = parity_outputs(spec, &group, &model, &predictions);
    let recovery = group.code.recovery();
    for in_predictions in subsets(spec.k).filter(|set| set.is_within(members)) {
        for in_parities in subsets(recovery.parities.min(4)) {
            for slot in 0..spec.k {
                let arrived = Arrived { members, predictions: in_predictions, parities: in_parities };
                let claimed = recovery.can_recover(arrived, Set::EMPTY.with(slot));
                // The slot's own prediction, which may have arrived, must be ignored.
                let mut seen = predictions.clone();
                seen[slot].fill(100.0);
                let result = decode(&group, &seen, &parities, in_predictions, in_parities, slot);
                let context = format!("{spec:?} seed {seed} {arrived:?} slot {slot}");
                match result {
                    Ok(actual) => {
                        prop_assert!(claimed, "{context}: decoded a loss that is not claimed");
                        // A condition number of up to 60 magnifies the rounding of sums of eight.
                        let tolerance = if spec.r < 3 { 1e-5 } else { 1e-4 };
                        prop_assert!(
                            agree(&actual, &predictions[slot], tolerance),
                            "{context}: {actual:?} instead of {:?}",
                            predictions[slot]
                        );
                    }
                    Err(Error::Unrecoverable { .. }) => {
                        prop_assert!(!claimed && members.contains(slot), "{context}")
                    }
                    Err(error) => {
                        prop_assert_eq!(error, Error::BlankSlot { slot, k: spec.k });
                        prop_assert!(!members.contains(slot));
                    }
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn claimed_losses_are_recovered_and_others_are_errors(
        k in 2_usize..=8, blank in any::<u8>(), seed in any::<u64>(),
    ) {
        let members: Set = (0..k).filter(|slot| *slot == seed as usize % k || blank >> slot & 1 == 0).collect();
        for spec in exact_specs(k) {
            check_every_pattern(&spec, members, seed)?;
        }
    }
}

#[test]
fn full_groups_recover_every_claimed_loss_for_each_k() {
    for k in 2..=8 {
        for spec in exact_specs(k) {
            check_every_pattern(&spec, Set::first(k), 11).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

#[test]
fn linear_codes_claim_up_to_as_many_losses_as_parities() {
    for k in 2..=8 {
        for r in 1..=3 {
            let recovery = CodeSpec::new(Kind::Weighted, k, r).build().expect("valid").recovery();
            for predictions in subsets(k) {
                for parities in subsets(r) {
                    let lost = Set::first(k).without(predictions);
                    let arrived = Arrived { members: Set::first(k), predictions, parities };
                    let expect = !lost.is_empty() && lost.len() <= parities.len();
                    assert_eq!(recovery.can_recover(arrived, lost), expect, "k {k} r {r} {arrived:?}");
                }
            }
        }
    }
}
