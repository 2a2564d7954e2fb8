//! Chooses the channels to remove by backward elimination.
//!
//! `H` is the inverse of the Gram matrix of the remaining channels, and `w` are the refitted weights of channel j.
//! Removing j changes the readers' outputs by `|w|^2 / H_jj` on average; afterwards a rank-one update corrects `H`
//! and all weights. Only the products of the weights with one another are needed, so the work does not depend on the
//! number of outputs.

use parm_parity_models::onnx::rewrite::Draft;

use super::gram::{Gram, Square, dot, of_rows};
use super::region::{Block, Reader, Reading};
use crate::workshop::Progress;

/// Ridge during the elimination, as a share of a channel's power.
const RIDGE: f64 = 1e-3;

/// The loss of one reader.
struct View {
    inverse: Square,
    /// Products of the weights of two channels.
    weights: Square,
    /// The variance of its output: losses are shares of it.
    power: f64,
}

/// All channels, those that stay longest first, in the order of an elimination down to `least`. The order is
/// arbitrary if the search is stopped.
pub(super) fn order(draft: &Draft, block: &Block, (least, progress): (usize, &dyn Progress)) -> Vec<usize> {
    let readers = block.readers.iter().zip(&block.grams);
    let mut views: Vec<View> = readers.filter_map(|(reader, gram)| View::of(draft, reader, gram)).collect();
    let mut left: Vec<usize> = (0..block.width).collect();
    let mut gone = Vec::new();
    while left.len() > least.max(1) && !views.is_empty() && !progress.is_stopped() {
        let loss = |at: usize| -> f64 { views.iter().map(|view| view.loss(at)).sum() };
        let losses: Vec<f64> = (0..left.len()).map(loss).collect();
        let Some(at) = (0..left.len()).min_by(|&a, &b| losses[a].total_cmp(&losses[b])) else { break };
        views.iter_mut().for_each(|view| view.remove(at, left.len()));
        gone.push(left.swap_remove(at));
    }
    left.extend(gone.into_iter().rev());
    left
}

impl View {
    /// `None` if the reader's output does not vary.
    fn of(draft: &Draft, reader: &Reader, gram: &Gram) -> Option<Self> {
        let products = gram.products();
        let weights = weights(draft, reader, products.size)?;
        let power = dot(&weights.values, &products.values);
        let level = products.level();
        if !(power.is_finite() && power > 0.0 && level > 0.0) {
            return None;
        }
        let all: Vec<usize> = (0..products.size).collect();
        let mut ridges = [RIDGE, 1e-2, 1e-1].into_iter().map(|ridge| ridge * level);
        let factor = ridges.find_map(|ridge| products.part(&all, ridge).factored())?;
        Some(Self { inverse: factor.inverse(), weights, power })
    }

    fn loss(&self, at: usize) -> f64 {
        self.weights.at(at, at) / self.inverse.at(at, at) / self.power
    }

    /// Removes the channel at position `at`; the last of the `count` remaining channels moves there.
    fn remove(&mut self, at: usize, count: usize) {
        let size = self.inverse.size;
        let column: Vec<f64> = self.inverse.row(at)[..count].to_vec();
        let products: Vec<f64> = self.weights.row(at)[..count].to_vec();
        let (scale, own) = (column[at].recip(), products[at]);
        for row in 0..count {
            let share = column[row] * scale;
            let inverse = &mut self.inverse.values[row * size..row * size + count];
            inverse.iter_mut().zip(&column).for_each(|(value, other)| *value -= share * other);
            let weights = &mut self.weights.values[row * size..row * size + count];
            let (across, along) = (products[row] * scale, share * own * scale);
            for ((value, other), product) in weights.iter_mut().zip(&column).zip(&products) {
                *value += along * other - share * product - across * other;
            }
        }
        for matrix in [&mut self.inverse, &mut self.weights] {
            let last = count - 1;
            matrix.values.copy_within(last * size..last * size + count, at * size);
            (0..count).for_each(|row| matrix.values[row * size + at] = matrix.values[row * size + last]);
        }
    }
}

/// Products of the weights that read two channels.
fn weights(draft: &Draft, reader: &Reader, width: usize) -> Option<Square> {
    let Reading::Weighted(layer) = reader.reading else {
        return Some(Square { size: width, values: vec![1.0; width * width] });
    };
    let weight = draft.constants.get(&draft.nodes[reader.at].input[1])?;
    let values = weight.to_f32().ok()?;
    let behind: usize = weight.dims()[layer.reads + 1..].iter().product::<usize>() * reader.channels.run;
    let before = values.len() / (width * behind).max(1);
    let mut by_channel = Vec::with_capacity(values.len());
    for channel in 0..width {
        for outer in 0..before {
            by_channel.extend_from_slice(&values[(outer * width + channel) * behind..][..behind]);
        }
    }
    Some(of_rows(&by_channel, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(products: &Square, weights: &Square) -> View {
        let all: Vec<usize> = (0..products.size).collect();
        let inverse = products.part(&all, 0.0).factored().unwrap().inverse();
        View { inverse, weights: weights.clone(), power: 1.0 }
    }

    /// The smallest squared error with only these channels: the part of the outputs `x w` that `x` on them cannot
    /// explain.
    fn error(products: &Square, weights: &Square, kept: &[usize]) -> f64 {
        let factor = products.part(kept, 0.0).factored().unwrap();
        let estimate = |channel: usize| {
            let mut right: Vec<f64> = kept.iter().map(|&other| products.at(channel, other)).collect();
            factor.solve(&mut right);
            right
        };
        let estimates: Vec<Vec<f64>> = (0..products.size).map(estimate).collect();
        let mut error = 0.0;
        for (a, b) in (0..products.size).flat_map(|a| (0..products.size).map(move |b| (a, b))) {
            let explained: f64 =
                kept.iter().zip(&estimates[a]).map(|(&kept, share)| share * products.at(kept, b)).sum();
            error += weights.at(a, b) * (products.at(a, b) - explained);
        }
        error
    }

    #[test]
    fn losses_of_all_steps_sum_to_the_error_of_the_best_refit() {
        let samples = parm_random::Random::new(2).normals(7 * 40);
        let products = of_rows(&samples, 7);
        let weights = of_rows(&parm_random::Random::new(3).normals(7 * 3), 7);
        let (mut view, mut left) = (view(&products, &weights), (0..7).collect::<Vec<usize>>());
        let mut lost = 0.0;
        while left.len() > 2 {
            let at = (0..left.len()).min_by(|&a, &b| view.loss(a).total_cmp(&view.loss(b))).unwrap();
            lost += view.loss(at);
            view.remove(at, left.len());
            left.swap_remove(at);
            let expected = error(&products, &weights, &left);
            assert!((lost / expected - 1.0).abs() < 1e-6, "{lost} instead of {expected}");
        }
    }
}
