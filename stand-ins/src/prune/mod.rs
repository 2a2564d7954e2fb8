//! Prunes channels inside of blocks, chosen and compensated by least squares.
//!
//! Channels between two linear operators can be removed without a change elsewhere if only value-by-value operators
//! are between them. Examples are the hidden features of a feed-forward, the filters of a convolution that only another
//! one reads, and the inner channels of a residual block.
//!
//! *Choice of channels.* A channel is worth what the others cannot replace, so neither its position nor the size of
//! its weights decides. Rows run through the graph, and the products of all pairs of channels are summed (the *Gram
//! matrix*, [`gram`]). It gives the cost of any choice: the error of the next operator's output after its weights are
//! refitted to the remaining channels. Backward elimination ([`eliminate`]) repeatedly removes the channel with the
//! least cost. Each step updates the inverse of the matrix, so all steps together cost about as much as one
//! inversion.
//!
//! *Weights.* Ridge regression estimates the removed channels from the remaining ones, and the estimate is folded
//! into the weights that read them ([`fit`]). The same refit serves a matrix, the windows of a convolution (each
//! place of the window alone), a layer behind a pool, and the mean of a layer normalisation, which is a sum over all
//! channels. Held-out rows choose the ridge.
//!
//! *Depth.* Channels of a residual stream, to which several layers add and which many layers read, are less
//! redundant, so cutting them costs more than cutting inside of blocks. Hence there are two depths ([`Depth`]):
//! inside of blocks only, and streams too if all their writers and readers are understood ([`region`]). Attention and
//! concatenations are not followed; a block that is not understood stays whole, and the reason is reported.
//!
//! Rejected: gradients (hours instead of seconds), and a refit of one block after another on the outputs of the
//! pruned blocks before, which takes one run per block. Cold start: with fewer rows than channels the matrix is
//! singular. The ridge then grows, and the candidate agrees less; it is measured like every other.

mod cut;
mod eliminate;
mod fit;
mod follow;
mod gather;
mod gram;
mod matrix;
mod region;

use std::collections::BTreeMap;

use parm_parity_models::onnx::rewrite::Draft;

pub(crate) use self::fit::{Estimate, estimate};
pub(crate) use self::gram::Gram;
use self::region::Block;
use crate::Error;
use crate::graph::{Links, Survey, tidy};
use crate::memory::in_words;
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

/// Channels that engines compute at a time: a width between two multiples costs as much as the larger one.
const BLOCK: usize = 8;
/// The smallest share of its channels that a block keeps.
const LEAST: f64 = 0.25;

/// The depth of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Channels that a single layer makes.
    Inside,
    /// Also channels that several layers add to.
    Streams,
}

/// The blocks that can be cut, with the order of elimination.
pub(crate) struct Pruning {
    draft: Draft,
    blocks: Vec<(Block, Order)>,
    /// Why other layers keep their width: reasons, with the number of layers for each.
    whole: BTreeMap<String, usize>,
}

/// The result of the elimination in a block.
struct Order {
    /// All channels, those that stay longest first.
    kept: Vec<usize>,
    grams: Vec<Gram>,
}

impl Pruning {
    /// Finds blocks and runs the rows through the graph.
    pub(crate) fn of(
        workshop: &Workshop,
        draft: &Draft,
        rows: &Rows,
        progress: &dyn Progress,
    ) -> Result<Self, Error> {
        let survey = Survey::of(workshop, draft, rows)?;
        let region::Found { blocks, mut whole } = region::find(draft, &Links::of(draft), &survey);
        let (blocks, larger) = gather::affordable(blocks);
        if !larger.is_empty() {
            let most = in_words(gather::MOST_OF_ALL as u64);
            progress.tell(&format!(
                "{} blocks keep their channels: sums for all take more than {most}",
                larger.len()
            ));
            *whole.entry(format!("sums of more than {most}")).or_default() += larger.len();
        }
        let mut ordered = Vec::with_capacity(blocks.len());
        if !blocks.is_empty() {
            let grams = gather::gather(workshop, draft, rows, (&blocks, progress))?;
            for (block, grams) in blocks.into_iter().zip(grams) {
                progress.check()?;
                let kept = eliminate::order(draft, &block, &grams, (width(block.width, LEAST), progress));
                ordered.push((block, Order { kept, grams }));
            }
        }
        Ok(Self { draft: draft.clone(), blocks: ordered, whole })
    }

    /// Whether this depth has blocks that a smaller depth does not have.
    pub(crate) fn reaches(&self, depth: Depth) -> bool {
        self.blocks.iter().any(|(block, _)| block.is_stream == (depth == Depth::Streams))
    }

    /// Whether any block gets narrower at this share.
    pub(crate) fn narrows(&self, share: f64, depth: Depth) -> bool {
        let mut blocks = self.blocks.iter().filter(|(block, _)| depth == Depth::Streams || !block.is_stream);
        blocks.any(|(block, _)| width(block.width, share) < block.width)
    }

    /// The graph with this share of the channels in every block, and a description.
    pub(crate) fn cut(&self, share: f64, depth: Depth) -> Result<(Draft, String), Error> {
        let mut draft = self.draft.clone();
        let blocks = self.blocks.iter().filter(|(block, _)| depth == Depth::Streams || !block.is_stream);
        let kept = |(block, order): &'_ (Block, Order)| {
            let mut kept = order.kept[..width(block.width, share).min(order.kept.len())].to_vec();
            kept.sort_unstable();
            kept
        };
        let blocks: Vec<(&Block, &[Gram], Vec<usize>)> =
            blocks.map(|all| (&all.0, &all.1.grams[..], kept(all))).collect();
        for (block, _, kept) in &blocks {
            cut::narrow(&mut draft, block, kept)?;
        }
        for (block, grams, kept) in &blocks {
            cut::make_up(&mut draft, block, grams, kept)?;
        }
        tidy(&mut draft);
        let left: usize = blocks.iter().map(|(_, _, kept)| kept.len()).sum();
        let all: usize = blocks.iter().map(|(block, ..)| block.width).sum();
        let count = |is_stream: bool, name: &str| {
            let count = blocks.iter().filter(|(block, ..)| block.is_stream == is_stream).count();
            let plural = if count == 1 { "" } else { "s" };
            (count > 0).then(|| format!("{count} {name}{plural}"))
        };
        let counts = [count(false, "block"), count(true, "stream")].into_iter().flatten();
        let counts = counts.collect::<Vec<_>>().join(" and ");
        Ok((draft, format!("{left} of {all} channels inside of {counts}")))
    }

    /// The reasons why no layer can be cut, in a few words.
    pub(crate) fn refusal(&self) -> String {
        let mut reasons: Vec<(&String, &usize)> = self.whole.iter().collect();
        reasons.sort_by_key(|(reason, count)| (std::cmp::Reverse(**count), reason.as_str()));
        let reasons: Vec<String> =
            reasons.iter().take(4).map(|(reason, count)| format!("{reason} ({count})")).collect();
        match reasons.is_empty() {
            true => "no layer of 16 channels or more with constant weights".into(),
            false => format!("every layer's channels lead to {}", reasons.join(", ")),
        }
    }
}

/// The number of channels for a share.
fn width(of: usize, share: f64) -> usize {
    let blocks = of as f64 * share / BLOCK as f64;
    // With few channels the nearest multiple may be far below the share, so round up: a width between two costs the
    // same.
    let blocks = if of >= 4 * BLOCK { blocks.round().max(1.0) } else { blocks.ceil() };
    (blocks as usize * BLOCK).min(of)
}

#[cfg(test)]
mod tests;
