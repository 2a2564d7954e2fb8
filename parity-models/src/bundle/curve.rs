//! Fits a curve from confidence to observed accuracy, if one temperature does not suffice.
//!
//! The curve is a line between the logarithms of confidence and of doubt (beta calibration). It has three numbers, so a few
//! hundred answers suffice, and it fits the usual errors of networks: underconfidence after softened labels, and
//! overconfidence. Rejected: bins of equal size with the accuracy of each, which fit any relation, but chance shifts a bin of
//! 250 answers by three points.

/// Pairs of a curve.
pub(super) const KNOTS: usize = 8;
/// The fewest answers of a curve.
const FEWEST: usize = 200;
/// Lower bound of confidence and doubt.
const LEAST: f64 = 1e-6;
/// Newton steps towards the best line, halvings of a step, and the weight of the penalty that pulls it to the identity.
const STEPS: usize = 25;
const HALVINGS: i32 = 20;
const PULL: f64 = 1e-2;

/// Rising pairs of a confidence and the observed accuracy.
pub(super) type Curve = [[f32; 2]; KNOTS];
/// A confidence, and whether the answer was right.
pub(super) type Outcome = (f32, bool);

/// The curve of the answers; `None` if it does not reduce the squared error on answers that it was not fitted to: each half
/// of the answers judges the curve of the other.
pub(super) fn fit(sure: &[Outcome]) -> Option<Curve> {
    if sure.len() < FEWEST {
        return None;
    }
    let [even, odd] = [0, 1].map(|at| sure.iter().copied().skip(at).step_by(2).collect::<Vec<_>>());
    let off = |sure: &[Outcome], curve: Option<&Curve>| -> f64 {
        let of = |&(confidence, is_right): &Outcome| {
            let said = curve.map_or(confidence, |curve| along(curve, confidence));
            (f64::from(said) - f64::from(u8::from(is_right))).powi(2)
        };
        sure.iter().map(of).sum()
    };
    let (before, curve) = (off(sure, None), line(sure)?);
    let crossed = off(&even, Some(&line(&odd)?)) + off(&odd, Some(&line(&even)?));
    // The halves judged each other's curves: the curve of all answers must reduce the error as well.
    (crossed < before && off(sure, Some(&curve)) < before).then_some(curve)
}

/// Whether all values are in 0 to 1 and rise.
pub(super) fn is_sound(curve: &Curve) -> bool {
    let rises = |pair: &[[f32; 2]]| pair[0][0] <= pair[1][0] && pair[0][1] <= pair[1][1];
    curve.as_flattened().iter().all(|value| (0.0..=1.0).contains(value)) && curve.windows(2).all(rises)
}

/// The curve's accuracy for a confidence, constant beyond its ends.
pub(super) fn along(curve: &Curve, confidence: f32) -> f32 {
    let above = curve.partition_point(|knot| knot[0] < confidence);
    let [low, high] = [above.saturating_sub(1), above.min(KNOTS - 1)].map(|at| curve[at]);
    match high[0] > low[0] {
        true => low[1] + (high[1] - low[1]) * (confidence - low[0]) / (high[0] - low[0]),
        false => high[1],
    }
}

/// The most likely line, at the quantiles of confidence, from the lowest to full confidence.
fn line(sure: &[Outcome]) -> Option<Curve> {
    let sorted = sorted(sure)?;
    let weights = slopes(&sorted);
    let share = |confidence: f32| logistic(dot(&weights, &features(confidence))) as f32;
    let mut knots = [[0.0f32; 2]; KNOTS];
    for (at, knot) in knots.iter_mut().enumerate() {
        let confidence = match at {
            0 => sorted[0].0,
            at if at + 1 == KNOTS => 1.0,
            at => sorted[at * sorted.len() / (KNOTS - 1)].0,
        };
        *knot = [confidence, share(confidence)];
    }
    is_sound(&knots).then_some(knots)
}

/// The answers by confidence, ascending; `None` if a confidence is outside 0 to 1.
fn sorted(sure: &[Outcome]) -> Option<Vec<Outcome>> {
    let mut sorted = sure.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    (sorted.len() >= KNOTS && sorted.iter().all(|(confidence, _)| (0.0..=1.0).contains(confidence)))
        .then_some(sorted)
}

/// The features of the line: the logarithms of confidence and of doubt.
fn features(confidence: f32) -> [f64; 3] {
    let confidence = f64::from(confidence);
    [1.0, confidence.max(LEAST).ln(), -(1.0 - confidence).max(LEAST).ln()]
}

/// The line's three numbers, by Newton's method. Negative slopes are fixed at zero, so that the line never falls.
fn slopes(sure: &[Outcome]) -> [f64; 3] {
    let mut free = [true; 3];
    loop {
        let mut weights = [0.0, 1.0, 1.0];
        (1..3).filter(|&at| !free[at]).for_each(|at| weights[at] = 0.0);
        for _ in 0..STEPS {
            let (mut slope, mut bend) = ([0.0; 3], [[0.0; 3]; 3]);
            for &(confidence, is_right) in sure {
                let features = features(confidence);
                let share = logistic(dot(&weights, &features));
                for row in 0..3 {
                    slope[row] += (share - f64::from(u8::from(is_right))) * features[row];
                    for column in 0..3 {
                        bend[row][column] += share * (1.0 - share) * features[row] * features[column];
                    }
                }
            }
            for at in 0..3 {
                slope[at] += PULL * (weights[at] - [0.0, 1.0, 1.0][at]);
                bend[at][at] += PULL;
                if !free[at] {
                    // Keeps a fixed slope.
                    (slope[at], bend[at]) = (0.0, [0.0; 3]);
                    bend[at][at] = 1.0;
                }
            }
            let (step, now) = (solve(bend, slope), surprise(&weights, sure));
            // A whole step may overshoot if nearly all answers are certain, so it is halved until the loss falls.
            let towards = |share: f64| std::array::from_fn(|at| weights[at] - share * step[at]);
            let shares = (0..HALVINGS).map(|times| 0.5f64.powi(times));
            let Some(next) = shares.map(towards).find(|next| surprise(next, sure) < now) else { break };
            weights = next;
        }
        match (1..3).find(|&at| free[at] && weights[at] < 0.0) {
            Some(at) => free[at] = false,
            None => return weights,
        }
    }
}

/// Negative log-likelihood of the answers, plus the penalty for the distance from the identity.
fn surprise(weights: &[f64; 3], sure: &[Outcome]) -> f64 {
    let of = |&(confidence, is_right): &Outcome| {
        let logit = dot(weights, &features(confidence)) * if is_right { -1.0 } else { 1.0 };
        // The logarithm of 1 plus a power, written so that the power does not overflow.
        logit.max(0.0) + (-logit.abs()).exp().ln_1p()
    };
    let pull = weights.iter().zip([0.0, 1.0, 1.0]).map(|(weight, rest)| (weight - rest).powi(2)).sum::<f64>();
    sure.iter().map(of).sum::<f64>() + PULL / 2.0 * pull
}

/// Solves three equations with a positive-definite matrix.
fn solve(mut matrix: [[f64; 3]; 3], mut sides: [f64; 3]) -> [f64; 3] {
    for at in 0..3 {
        for below in at + 1..3 {
            let (above, share) = (matrix[at], matrix[below][at] / matrix[at][at]);
            matrix[below].iter_mut().zip(above).for_each(|(value, above)| *value -= share * above);
            sides[below] -= share * sides[at];
        }
    }
    for at in (0..3).rev() {
        let known: f64 = (at + 1..3).map(|column| matrix[at][column] * sides[column]).sum();
        sides[at] = (sides[at] - known) / matrix[at][at];
    }
    sides
}

fn dot(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn logistic(value: f64) -> f64 {
    1.0 / (1.0 + (-value).exp())
}

#[cfg(test)]
mod tests {
    use parm_random::Random;

    use super::*;

    /// Answers with evenly spread confidence whose accuracy is `share` of it.
    fn answers(count: usize, seed: u64, share: fn(f64) -> f64) -> Vec<Outcome> {
        let mut random = Random::new(seed);
        let one = |_| {
            let confidence = 0.3 + 0.7 * random.unit();
            (confidence as f32, random.unit() < share(confidence))
        };
        (0..count).map(one).collect()
    }

    /// The largest distance of a curve from the truth.
    fn worst(curve: &Curve, share: fn(f64) -> f64) -> f64 {
        let at = (30..100).map(|percent| f64::from(percent) / 100.0);
        at.map(|confidence| (f64::from(along(curve, confidence as f32)) - share(confidence)).abs())
            .fold(0.0, f64::max)
    }

    fn bent(confidence: f64) -> f64 {
        logistic(0.4 + 0.6 * confidence.ln() - 1.7 * (1.0 - confidence).max(LEAST).ln())
    }

    #[test]
    fn line_recovers_the_true_weights() {
        let found = slopes(&answers(40_000, 3, bent));
        let wanted = [0.4, 0.6, 1.7];
        assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 0.15), "{found:?}");
        let curve = fit(&answers(2_000, 4, bent)).unwrap();
        assert!(worst(&curve, bent) < 0.06 && is_sound(&curve), "{curve:?}");
    }

    #[test]
    fn line_does_no_harm_if_many_answers_are_certain() {
        let mixed = |seed: u64, (certain, top, right): (f64, f32, f64)| {
            let mut random = Random::new(seed);
            let one = |_| match random.unit() < certain {
                true => (top, random.unit() < right),
                false => {
                    let confidence = 0.3 + 0.69 * random.unit();
                    (confidence as f32, random.unit() < confidence)
                }
            };
            (0..1_000).map(one).collect::<Vec<Outcome>>()
        };
        for seed in 0..4 {
            for (top, right) in [(0.99999, 0.95), (0.9999, 0.995), (1.0, 0.9), (1.0, 1.0)] {
                let sure = mixed(seed, (0.3, top, right));
                let (found, start) = (slopes(&sure), [0.0, 1.0, 1.0]);
                assert!(surprise(&found, &sure) <= surprise(&start, &sure), "{found:?}");
                let middle = fit(&sure).map_or(0.5, |curve| along(&curve, 0.5));
                assert!((0.35..0.65).contains(&middle), "{top} {right}: 0.5 becomes {middle}");
            }
        }
    }

    #[test]
    fn line_does_not_fall_if_accuracy_falls() {
        // Accuracy falls with confidence: no rising curve fits that, and a curve may not fall.
        let falling = answers(4_000, 5, |confidence| 1.2 - confidence);
        let found = slopes(&falling);
        assert!(found[1] >= 0.0 && found[2] >= 0.0, "{found:?}");
        assert!(is_sound(&line(&falling).unwrap()));
    }

    #[test]
    fn curve_is_not_fitted_if_useless_or_answers_are_few() {
        // If confidence equals accuracy, a curve fits noise, which helps on other answers half of the time.
        let found =
            |share: fn(f64) -> f64| (0..20).filter_map(|seed| fit(&answers(1_000, seed, share))).count();
        let (right, wrong) = (found(|confidence| confidence), found(bent));
        assert!(right <= 12 && wrong == 20, "{right} and {wrong}");
        assert_eq!(fit(&answers(FEWEST - 1, 1, bent)), None);
        assert_eq!(fit(&[(f32::NAN, true)].repeat(400)), None);
    }

    #[test]
    fn curve_interpolates_and_is_constant_beyond_its_ends() {
        let mut curve = [[0.0; 2]; KNOTS];
        for (at, knot) in curve.iter_mut().enumerate() {
            *knot = [0.2 + 0.1 * at as f32, 0.1 * at as f32];
        }
        for (confidence, share) in [(0.0, 0.0), (0.2, 0.0), (0.25, 0.05), (0.5, 0.3), (0.9, 0.7), (1.0, 0.7)]
        {
            assert!((along(&curve, confidence) - share).abs() < 1e-5, "{confidence}");
        }
        assert_eq!(along(&[[0.5, 0.7]; KNOTS], 0.5), 0.7);
    }
}
