//! How sure a reconstruction is: the probability of its most likely class, after the temperature that was fitted on held-out
//! groups. Values that are no classes have none.

use parm_parity_models::bundle::Meaning;

/// The confidence of one output, over whose last axis of `classes` the classes lie; the least sure position counts.
pub(super) fn of(values: &[f32], classes: usize, meaning: Meaning, temperature: f32) -> Option<f32> {
    if meaning == Meaning::Values || classes < 2 || values.len() < classes {
        return None;
    }
    let positions = values.chunks_exact(classes).map(|scores| match meaning {
        Meaning::Logits => top(scores.iter().map(|score| score / temperature)),
        // Tempering probabilities is tempering their logarithms; a decoder's may be slightly below zero.
        Meaning::Probabilities | Meaning::Values => {
            top(scores.iter().map(|score| score.max(1e-30).ln() / temperature))
        }
    });
    positions.min_by(f32::total_cmp)
}

/// The largest value of the softmax.
fn top(logits: impl Iterator<Item = f32> + Clone) -> f32 {
    let largest = logits.clone().fold(f32::NEG_INFINITY, f32::max);
    1.0 / logits.map(|logit| (logit - largest).exp()).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_softmax_of_the_best_class() {
        let check = |values: &[f32], classes, meaning, temperature, expect: Option<f32>| {
            let had = of(values, classes, meaning, temperature);
            let same = had.zip(expect).map_or(had == expect, |(had, expect)| (had - expect).abs() < 1e-5);
            assert!(same, "{values:?}: {had:?}, not {expect:?}");
        };
        check(&[0.0, 0.0], 2, Meaning::Logits, 1.0, Some(0.5));
        check(&[3.0f32.ln(), 0.0], 2, Meaning::Logits, 1.0, Some(0.75));
        check(&[2.0 * 3.0f32.ln(), 0.0], 2, Meaning::Logits, 2.0, Some(0.75));
        check(&[0.75, 0.25], 2, Meaning::Probabilities, 1.0, Some(0.75));
        check(&[1.01, -0.01], 2, Meaning::Probabilities, 1.0, Some(1.0));
        check(&[90.0, 0.0, 0.0, 0.0], 2, Meaning::Logits, 1.0, Some(0.5));
        check(&[1.0, 2.0], 2, Meaning::Values, 1.0, None);
        check(&[1.0], 1, Meaning::Logits, 1.0, None);
    }
}
