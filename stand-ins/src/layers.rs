//! Shortened networks: the first of several repeated blocks, then a linear map.
//!
//! Encoders and residual networks repeat one block, and each adds a little to a stream. A stand-in runs the first
//! blocks and estimates the rest: a linear map from the stream behind the last block that runs to the stream behind
//! the last of all, fitted by least squares on the given rows ([`Shortcuts`]). The rest of the network (a
//! normalisation, a pool, a head) reads the estimate and need not be understood. As a product with one matrix, the
//! map costs a tenth of a block.
//!
//! Blocks are recognised by their likeness ([`repeats`]), not by their operators, which every exporter
//! writes in another way: values of equal sizes in a row, with the same operators between each and the next, and no
//! other path past them.
//!
//! Rejected: a refit of the head alone. It has one sample per row, where a stream has one per token or place, and
//! models that return an embedding have no head. A head trained with gradients would do more; that is `parm train
//! stand-in`.

use std::collections::BTreeMap;

use bit_set::BitSet;
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Attribute, Tensor};

use crate::Error;
use crate::graph::{Links, Look, Survey, inner_values, tidy};
use crate::prune::{Estimate, Gram, estimate, spread};
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

/// Maximum nodes of a graph, and maximum values of one size: their pairs are compared.
const MOST_NODES: usize = 8192;
const MOST_VALUES: usize = 512;
/// Blocks of fewer nodes are not layers.
const SMALLEST: usize = 4;

/// A stream: its values before the first block, behind it, and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repeats {
    pub(crate) values: Vec<String>,
    pub(crate) nodes: usize,
}

/// The repetition that covers most of the graph's nodes; `None` if no two blocks are alike.
pub(crate) fn repeats(draft: &Draft, links: &Links, survey: &Survey) -> Option<Repeats> {
    let looks = survey.looks();
    if draft.nodes.len() > MOST_NODES || looks.is_empty() {
        return None;
    }
    let reach = Reach::of(draft, links);
    let mut best: Option<Repeats> = None;
    for values in alike(draft, looks).into_values().filter(|values| (3..=MOST_VALUES).contains(&values.len()))
    {
        for start in 0..values.len() - 2 {
            for step in 1..=(values.len() - 1 - start) / 2 {
                let places: Vec<usize> = values[start..].iter().step_by(step).copied().collect();
                let Some(found) = reach.chain(draft, links, &places) else { continue };
                let nodes = |repeats: &Repeats| (repeats.values.len() - 1) * repeats.nodes;
                if best.as_ref().is_none_or(|best| nodes(&found) > nodes(best)) {
                    best = Some(found);
                }
            }
        }
    }
    best
}

/// Groups of nodes whose values could be the same stream: they have the same sizes in every run.
fn alike(draft: &Draft, looks: &[Look]) -> BTreeMap<Vec<Vec<usize>>, Vec<usize>> {
    let mut kinds: BTreeMap<Vec<Vec<usize>>, Vec<usize>> = BTreeMap::new();
    for (at, node) in draft.nodes.iter().enumerate() {
        let Some(made) = node.only_output() else { continue };
        let sizes: Option<Vec<Vec<usize>>> = looks.iter().map(|look| look.get(made).cloned()).collect();
        let Some(sizes) = sizes.filter(|sizes| sizes[0].len() > 1) else { continue };
        kinds.entry(sizes).or_default().push(at);
    }
    kinds
}

/// The ancestors of each node, including itself.
struct Reach(Vec<BitSet>);

impl Reach {
    /// Requires nodes in execution order.
    fn of(draft: &Draft, links: &Links) -> Self {
        let mut before: Vec<BitSet> = Vec::with_capacity(draft.nodes.len());
        for (at, node) in draft.nodes.iter().enumerate() {
            let mut own = BitSet::with_capacity(draft.nodes.len());
            own.insert(at);
            let makers = node.input.iter().filter_map(|name| links.maker(name));
            makers.filter_map(|maker| before.get(maker)).for_each(|made| own.union_with(made));
            before.push(own);
        }
        Self(before)
    }

    /// The longest prefix of these values with the same block between each and the next.
    fn chain(&self, draft: &Draft, links: &Links, places: &[usize]) -> Option<Repeats> {
        let block = |from: usize, to: usize| -> Vec<usize> { self.between((places[0], to), from).collect() };
        let operators = |nodes: &[usize]| {
            let mut operators: Vec<&str> = nodes.iter().map(|&at| draft.nodes[at].op_type.as_str()).collect();
            operators.sort_unstable();
            operators
        };
        let first = block(places[0], places[1]);
        if first.len() < SMALLEST {
            return None;
        }
        let wanted = operators(&first);
        let mut ends = vec![places[0]];
        for pair in places.windows(2) {
            let nodes = block(pair[0], pair[1]);
            let is_same = self.0[pair[1]].contains(pair[0]) && operators(&nodes) == wanted;
            if !is_same || self.leads_past(draft, links, (places[0], pair[1])) {
                break;
            }
            ends.push(pair[1]);
        }
        let name = |&at: &usize| draft.nodes[at].only_output().map(str::to_owned);
        let values = ends.iter().map(name).collect::<Option<Vec<String>>>()?;
        (values.len() > 2).then_some(Repeats { values, nodes: first.len() })
    }

    /// The nodes on the way from one to another that another one does not depend on.
    fn between(&self, (start, end): (usize, usize), without: usize) -> impl Iterator<Item = usize> {
        let is_behind = move |at: usize| self.0[at].contains(start) && !self.0[without].contains(at);
        self.0[end].iter().filter(move |&at| is_behind(at))
    }

    /// Whether a path other than the value at position `end` leads from the blocks since `start` to later nodes.
    fn leads_past(&self, draft: &Draft, links: &Links, (start, end): (usize, usize)) -> bool {
        let mut others = self.between((start, end), start).filter(|&at| at != end);
        others.any(|at| {
            draft.nodes[at].output.iter().any(|made| {
                links.is_kept(made) || links.readers(made).iter().any(|&reader| !self.0[end].contains(reader))
            })
        })
    }
}

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
        inner_values(workshop, (draft, &values), (rows, progress), |(chunk, chunks), made| {
            let Some((last, others)) = made.split_last() else { return Ok(()) };
            let last_values = last.as_f32()?;
            let inner: usize = last.shape()[axis + 1..].iter().product();
            let places = last_values.len() / width;
            let wanted = (width * FOR_EACH).max(LEAST).div_ceil(chunks);
            for (other, (_, gram)) in others.iter().zip(&mut seen) {
                let values = other.as_f32()?;
                for base in spread((places, wanted), (width, inner), chunk) {
                    let pair = (0..2 * width).map(|at| match at.checked_sub(width) {
                        None => values[base + at * inner],
                        Some(at) => last_values[base + at * inner],
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

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Builder, Model, Value};
    use parm_random::Random;

    use super::*;
    use crate::testing::{Alone, Stage};

    fn constant(builder: &mut Builder, name: &str, dims: &[usize], scale: f32) -> String {
        let mut values = Random::named(8, name).normals(dims.iter().product());
        values.iter_mut().for_each(|value| *value *= scale / (dims[0] as f32).sqrt());
        builder.constant(Tensor::from_f32(name, dims, &values).unwrap())
    }

    /// Residual blocks that each add a little, between a stem and a head.
    fn stack(blocks: usize) -> Model {
        let (mut builder, x) = Builder::reading("stack", 1, Value::batch_of_f32("x", &[8]));
        let stem = constant(&mut builder, "stem", &[8, 12], 1.0);
        let mut stream = builder.node("MatMul", "stream.0", &[&x, &stem]);
        for at in 1..=blocks {
            let up = constant(&mut builder, &format!("up.{at}"), &[12, 24], 1.0);
            let down = constant(&mut builder, &format!("down.{at}"), &[24, 12], 0.3);
            let hidden = builder.node("MatMul", &format!("hidden.{at}"), &[&stream, &up]);
            let bent = builder.node("Relu", &format!("bent.{at}"), &[&hidden]);
            let back = builder.node("MatMul", &format!("back.{at}"), &[&bent, &down]);
            stream = builder.node("Add", &format!("stream.{at}"), &[&stream, &back]);
        }
        let head = constant(&mut builder, "head", &[12, 5], 1.0);
        builder.node("MatMul", "y", &[&stream, &head]);
        builder.build_with(Value::batch_of_f32("y", &[5])).unwrap()
    }

    fn rows(stage: &Stage, model: &Model, seed: u64, count: usize) -> crate::Rows {
        let values = Random::new(seed).normals(count * 8);
        stage.rows(model, &[parm_protocol::Tensor::from_f32([count, 8].as_slice(), &values).unwrap()])
    }

    #[test]
    fn repeats_finds_alike_blocks_and_their_stream() {
        let stage = Stage::new();
        let found = |blocks: usize| {
            let model = stack(blocks);
            let draft = Draft::new(&model).unwrap();
            let survey = Survey::of(&stage.workshop, &draft, &rows(&stage, &model, 1, 4)).unwrap();
            repeats(&draft, &Links::of(&draft), &survey)
        };
        let values: Vec<String> = (0..=6).map(|at| format!("stream.{at}")).collect();
        assert_eq!(found(6), Some(Repeats { values, nodes: 4 }));
        assert_eq!(found(1), None, "one block repeats nothing");
    }

    #[test]
    fn linear_map_replaces_more_blocks_at_more_error() {
        let (model, stage) = (stack(6), Stage::new());
        let draft = Draft::new(&model).unwrap();
        let fitted = rows(&stage, &model, 1, 400);
        let survey = Survey::of(&stage.workshop, &draft, &fitted).unwrap();
        let found = repeats(&draft, &Links::of(&draft), &survey).unwrap();
        let shortcuts =
            Shortcuts::of(&stage.workshop, &draft, &fitted, (found, &survey, &Alone)).unwrap().unwrap();
        let fresh = rows(&stage, &model, 2, 100);
        let said = stage.answers(&model, &fresh);
        let mut losses = Vec::new();
        let cut = shortcuts.cut(&draft).unwrap();
        assert_eq!(
            cut.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>(),
            ["layers-4-of-6", "layers-3-of-6", "layers-2-of-6"]
        );
        for (blocks, (_, _, short)) in [4, 3, 2].into_iter().zip(cut) {
            // Stem and head, four nodes per block, and the map in two.
            assert_eq!(short.nodes.len(), 2 + 4 * blocks + 2);
            let answers = stage.answers(&short.finish().unwrap(), &fresh);
            let apart: f32 = said.iter().zip(&answers).map(|(a, b)| (a - b).powi(2)).sum();
            losses.push((apart / said.iter().map(|a| a.powi(2)).sum::<f32>()).sqrt());
        }
        assert!(losses[0] < 0.15 && losses[0] < losses[2], "{losses:?}");
    }
}
