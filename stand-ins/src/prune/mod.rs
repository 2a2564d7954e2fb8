//! Fewer channels inside of blocks, chosen and made up for by least squares.
//!
//! Between two linear operators with only value-by-value operators between them (the hidden features of a feed-forward, the
//! filters of a convolution that only another one reads, the inner channels of a residual block), channels can go without
//! anybody else noticing. Two questions: which, and what becomes of the weights that read them.
//!
//! Which: not the first ones, nor those with small weights. Channels say much the same as others do together, so a channel
//! is worth what the others cannot make up for. Rows are run through the graph, and the products of all pairs of channels
//! are added up (the *Gram matrix*, [`gram`]). From it follows what any choice costs: how far the next operator's output is
//! from what it was, after its weights were refitted to the channels that are left. Backward elimination ([`eliminate`])
//! takes away the channel that costs least, again and again; each step updates the inverse of the matrix, so that all of
//! them together cost about as much as inverting it once.
//!
//! The weights: channels that are gone are estimated from those that are left, by ridge regression, and the estimate is
//! folded into the weights that read them ([`fit`]). So a refit is the same for a matrix, for windows of a convolution
//! (each place of the window by itself), for a layer behind a pool, and for the mean of a layer normalisation, which is a
//! sum over all channels. How strong the ridge is, held-out rows say.
//!
//! What several layers add to, everybody reads: the channels of such a residual stream say less about one another, and to cut
//! them costs more than to cut those inside of blocks. So there are two depths ([`Depth`]): inside of blocks alone, and streams
//! too, where all who add to one and all who read it are understood ([`region`]). Nothing is followed through attention or
//! concatenations; a block that is not understood stays whole, and is named.
//!
//! Rejected: gradients (hours for what takes seconds here), and the refit of all blocks one after another on the outputs of
//! those before, which takes as many runs as there are blocks. Cold start: with fewer rows than channels the matrix is
//! singular. The ridge grows then, and the candidate agrees less; it is measured like every other.

mod cut;
mod eliminate;
mod fit;
mod follow;
mod gather;
mod gram;
mod linear;
mod matrix;
mod region;

use std::collections::BTreeMap;

use parm_parity_models::onnx::rewrite::Draft;

pub(crate) use self::fit::{Estimate, estimate};
pub(crate) use self::gram::Gram;
use self::region::Block;
use crate::Error;
use crate::graph::{Links, Survey, sort, sweep};
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

/// Channels that engines compute at a time: numbers between cost them as much as the next multiple.
const BLOCK: usize = 8;
/// The least share that any block is cut to.
const LEAST: f64 = 0.25;

/// How far cuts go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Channels that one layer makes.
    Inside,
    /// Those too that several layers add to.
    Streams,
}

/// What can be cut, and in which order channels go.
pub(crate) struct Pruning {
    draft: Draft,
    blocks: Vec<(Block, Order)>,
    /// Why other layers stay as wide as they are: reasons, and how many layers each is for.
    whole: BTreeMap<String, usize>,
}

/// What elimination found out about a block.
struct Order {
    /// All channels, those that stay longest first.
    kept: Vec<usize>,
    grams: Vec<Gram>,
}

impl Pruning {
    /// Looks for blocks and runs the rows through the graph.
    pub(crate) fn of(
        workshop: &Workshop,
        draft: &Draft,
        rows: &Rows,
        progress: &dyn Progress,
    ) -> Result<Self, Error> {
        let survey = Survey::of(workshop, draft, rows)?;
        let region::Found { blocks, whole } = region::find(draft, &Links::of(draft), &survey);
        let mut ordered = Vec::with_capacity(blocks.len());
        for batch in gather::batches(blocks) {
            let grams = gather::gather(workshop, draft, rows, (&batch, progress))?;
            for (block, grams) in batch.into_iter().zip(grams) {
                if progress.is_stopped() {
                    return Err(Error::Stopped);
                }
                let kept = eliminate::order(draft, &block, &grams, (width(block.width, LEAST), progress));
                ordered.push((block, Order { kept, grams }));
            }
        }
        Ok(Self { draft: draft.clone(), blocks: ordered, whole })
    }

    /// Whether there is something to cut at a depth that there is not at a lesser one.
    pub(crate) fn reaches(&self, depth: Depth) -> bool {
        self.blocks.iter().any(|(block, _)| block.is_stream == (depth == Depth::Streams))
    }

    /// Whether any block has fewer channels at this share: there is no half of what engines compute at a time.
    pub(crate) fn narrows(&self, share: f64, depth: Depth) -> bool {
        let mut blocks = self.blocks.iter().filter(|(block, _)| depth == Depth::Streams || !block.is_stream);
        blocks.any(|(block, _)| width(block.width, share) < block.width)
    }

    /// The graph with this share of the channels in every block, and how many of them that are.
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
        draft.forget(|_| true);
        sort(&mut draft);
        sweep(&mut draft);
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

    /// Why there is no block, in a few words.
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

/// How many channels of so many a share is.
fn width(of: usize, share: f64) -> usize {
    let blocks = of as f64 * share / BLOCK as f64;
    // Of few channels the nearest multiple may be far below what is wanted, and what lies between is no cheaper than the next.
    let blocks = if of >= 4 * BLOCK { blocks.round().max(1.0) } else { blocks.ceil() };
    (blocks as usize * BLOCK).min(of)
}

#[cfg(test)]
mod tests;
