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
//! The residual stream is never touched: what several layers add to, everybody reads ([`region`]). So nothing has to be
//! followed through attention or concatenations; a block that is not understood stays whole, and is named.
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
                let kept = eliminate::order(draft, &block, &grams, width(block.width, LEAST));
                ordered.push((block, Order { kept, grams }));
            }
        }
        Ok(Self { draft: draft.clone(), blocks: ordered, whole })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The graph with this share of the channels in every block, and how many of them that are.
    pub(crate) fn cut(&self, share: f64) -> Result<(Draft, String), Error> {
        let mut draft = self.draft.clone();
        let kept = |(block, Order { kept, .. }): &(Block, Order)| {
            let mut kept = kept[..width(block.width, share).min(kept.len())].to_vec();
            kept.sort_unstable();
            kept
        };
        let kept: Vec<Vec<usize>> = self.blocks.iter().map(kept).collect();
        for ((block, _), kept) in self.blocks.iter().zip(&kept) {
            cut::narrow(&mut draft, block, kept)?;
        }
        for ((block, Order { grams, .. }), kept) in self.blocks.iter().zip(&kept) {
            cut::make_up(&mut draft, block, grams, kept)?;
        }
        draft.forget(|_| true);
        sort(&mut draft);
        sweep(&mut draft);
        let left: usize = kept.iter().map(Vec::len).sum();
        let all: usize = self.blocks.iter().map(|(block, _)| block.width).sum();
        let plural = if self.blocks.len() == 1 { "" } else { "s" };
        Ok((draft, format!("{left} of {all} channels inside of {} block{plural}", self.blocks.len())))
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
    let exact = of as f64 * share;
    let whole = match of >= 4 * BLOCK {
        true => (exact / BLOCK as f64).round().max(1.0) * BLOCK as f64,
        false => exact.round().max(1.0),
    };
    (whole as usize).min(of)
}

#[cfg(test)]
mod tests;
