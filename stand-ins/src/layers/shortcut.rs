//! Replaces the last blocks with a linear map.

use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Attribute, Tensor};

use super::Repeats;
use crate::Error;
use crate::graph::{Survey, probe, tidy, types};
use crate::prune::{Estimate, Gram, estimate};
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

/// Rows per run, if their values fit the memory.
const TOGETHER: usize = 4;
/// Wider streams take minutes and gigabytes.
const WIDEST: usize = 1024;
/// Enough samples per channel, and the minimum.
const FOR_EACH: usize = 8;
const LEAST: usize = 4096;

/// Linear maps from the stream behind each block to the stream behind the last.
pub(crate) struct Shortcuts {
    repeats: Repeats,
    /// The stream's channels.
    width: usize,
    /// Whether channels follow the rows; otherwise they are the last axis.
    is_picture: bool,
    /// For some blocks, the products of the stream behind them with the stream behind the last.
    seen: Vec<(usize, Gram)>,
}

impl Shortcuts {
    /// Runs the rows; `None` if the stream is too wide, or its rank does not tell the axis of the channels.
    pub(crate) fn of(
        workshop: &Workshop,
        draft: &Draft,
        rows: &Rows,
        (repeats, survey, progress): (Repeats, &Survey, &dyn Progress),
    ) -> Result<Option<Self>, Error> {
        let stream = &repeats.values[0];
        let sizes: Vec<&[usize]> =
            survey.looks().iter().filter_map(|look| look.get(stream).map(Vec::as_slice)).collect();
        let rank = sizes.first().map_or(0, |sizes| sizes.len());
        // Pictures have their channels behind the rows, lists of features at the end.
        let is_picture = rank == 4;
        let axis = if is_picture { 1 } else { rank.saturating_sub(1) };
        let width = sizes.first().and_then(|sizes| sizes.get(axis)).copied().unwrap_or(0);
        let is_fixed = sizes.iter().all(|sizes| sizes.get(axis) == Some(&width));
        if !(2..=4).contains(&rank) || !is_fixed || !(1..=WIDEST).contains(&width) {
            return Ok(None);
        }
        let blocks = repeats.values.len() - 1;
        let mut wanted: Vec<usize> =
            [2 * blocks / 3, blocks / 2, blocks / 3].into_iter().filter(|at| *at > 0).collect();
        wanted.dedup();
        let mut seen: Vec<(usize, Gram)> =
            wanted.into_iter().map(|at| (at, Gram::new(2 * width, true))).collect();
        let values: Vec<String> =
            seen.iter().map(|(at, _)| *at).chain([blocks]).map(|at| repeats.values[at].clone()).collect();
        let together = workshop.returning(TOGETHER, Survey::bytes(workshop, draft, &values, rows))?;
        let mut runner = workshop.load("stream", probe(draft, &values, &types(draft))?.bytes())?;
        let chunks = rows.len().div_ceil(together);
        runner.run_all(rows, (together, progress), |chunk, made| {
            let Some((last, others)) = made.split_last() else { return Ok(()) };
            let last_values = last.as_f32()?;
            let inner: usize = last.shape()[axis + 1..].iter().product();
            let places = last_values.len() / width;
            let wanted = (width * FOR_EACH).max(LEAST).div_ceil(chunks).min(places);
            for (other, (_, gram)) in others.iter().zip(&mut seen) {
                let values = other.as_f32()?;
                for at in 0..wanted {
                    let place = (at * places / wanted + chunk * 31) % places;
                    let base = place / inner * width * inner + place % inner;
                    let channel = |at: usize| base + at * inner;
                    let pair = (0..2 * width).map(|at| match at.checked_sub(width) {
                        None => values[channel(at)],
                        Some(at) => last_values[channel(at)],
                    });
                    gram.add(chunk, pair);
                }
            }
            Ok(())
        })?;
        seen.iter_mut().for_each(|(_, gram)| gram.settle());
        Ok(Some(Self { repeats, width, is_picture, seen }))
    }

    /// For each tried block: a name, a description and the graph.
    pub(crate) fn cut(&self, draft: &Draft) -> Result<Vec<(String, String, Draft)>, Error> {
        let blocks = self.repeats.values.len() - 1;
        let all = self.seen.iter().map(|(at, gram)| {
            let name = format!("layers-{at}-of-{blocks}");
            let how = format!(
                "the first {at} of {blocks} blocks of {} nodes, then a linear map",
                self.repeats.nodes
            );
            Ok((name, how, self.shortened(draft, *at, gram)?))
        });
        all.collect()
    }

    fn shortened(&self, draft: &Draft, at: usize, gram: &Gram) -> Result<Draft, Error> {
        let (width, mut draft) = (self.width, draft.clone());
        let (kept, gone): (Vec<usize>, Vec<usize>) = ((0..width).collect(), (width..2 * width).collect());
        let Estimate { shares, constants } = estimate(gram, &kept, &gone);
        let (from, to) = (&self.repeats.values[at], &self.repeats.values[self.repeats.values.len() - 1]);
        let constants: Vec<f32> = constants.into_iter().map(|value| value as f32).collect();
        // Readers of the last block's stream read the estimate under its name.
        let before = draft.fresh(to);
        let outputs = draft.nodes.iter_mut().flat_map(|node| &mut node.output);
        outputs.filter(|name| *name == to).for_each(|name| name.clone_from(&before));
        let bias = draft.add_constant(Tensor::from_f32(&format!("{from}/shift"), &[width], &constants)?);
        let name = format!("{from}/map");
        if self.is_picture {
            let weights: Vec<f32> = shares.iter().flatten().map(|&share| share as f32).collect();
            let weight = draft.add_constant(Tensor::from_f32(&name, &[width, width, 1, 1], &weights)?);
            let kernel = Attribute::Ints(vec![1, 1]);
            let conv = draft.make("Conv", &[from, &weight, &bias], to, [("kernel_shape", kernel)]);
            draft.nodes.push(conv);
        } else {
            let share = |at: usize| shares[at % width][at / width] as f32;
            let weights: Vec<f32> = (0..width * width).map(share).collect();
            let weight = draft.add_constant(Tensor::from_f32(&name, &[width, width], &weights)?);
            let product = draft.fresh(&format!("{from}/product"));
            let matmul = draft.make("MatMul", &[from, &weight], &product, []);
            let add = draft.make("Add", &[&product, &bias], to, []);
            draft.nodes.extend([matmul, add]);
        }
        tidy(&mut draft);
        Ok(draft)
    }
}
