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
//! into the weights that read them ([`gram`]). The same refit serves a matrix, the windows of a convolution (each
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
mod gram;
mod region;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use parm_parity_models::onnx::rewrite::Draft;
use parm_protocol::Tensor;

pub(crate) use self::gram::{Estimate, Gram, estimate};
use self::region::{Block, Reader, Reading};
use crate::Error;
use crate::graph::{Links, Survey, inner_values, tidy};
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
    blocks: Vec<Block>,
    /// Why other layers keep their width: reasons, with the number of layers for each.
    whole: BTreeMap<String, usize>,
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
        let (mut blocks, larger) = affordable(blocks);
        if !larger.is_empty() {
            let most = in_words(MOST_OF_ALL as u64);
            progress.tell(&format!(
                "{} blocks keep their channels: sums for all take more than {most}",
                larger.len()
            ));
            *whole.entry(format!("sums of more than {most}")).or_default() += larger.len();
        }
        if !blocks.is_empty() {
            gather(workshop, draft, rows, (&mut blocks, progress))?;
        }
        for block in &mut blocks {
            progress.check()?;
            block.kept = eliminate::order(draft, block, (width(block.width, LEAST), progress));
        }
        Ok(Self { draft: draft.clone(), blocks, whole })
    }

    /// Whether this depth has blocks that a smaller depth does not have.
    pub(crate) fn reaches(&self, depth: Depth) -> bool {
        self.blocks.iter().any(|block| block.is_stream == (depth == Depth::Streams))
    }

    /// The blocks that are cut at this depth.
    fn at(&self, depth: Depth) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(move |block| depth == Depth::Streams || !block.is_stream)
    }

    /// Whether any block gets narrower at this share.
    pub(crate) fn narrows(&self, share: f64, depth: Depth) -> bool {
        self.at(depth).any(|block| width(block.width, share) < block.width)
    }

    /// The graph with this share of the channels in every block, and a description.
    pub(crate) fn cut(&self, share: f64, depth: Depth) -> Result<(Draft, String), Error> {
        let mut draft = self.draft.clone();
        let kept = |block: &Block| {
            let mut kept = block.kept[..width(block.width, share).min(block.kept.len())].to_vec();
            kept.sort_unstable();
            kept
        };
        let blocks: Vec<(&Block, Vec<usize>)> = self.at(depth).map(|block| (block, kept(block))).collect();
        for (block, kept) in &blocks {
            cut::narrow(&mut draft, block, kept)?;
        }
        for (block, kept) in &blocks {
            cut::make_up(&mut draft, block, kept)?;
        }
        tidy(&mut draft);
        let left: usize = blocks.iter().map(|(_, kept)| kept.len()).sum();
        let all: usize = blocks.iter().map(|(block, _)| block.width).sum();
        let count = |is_stream: bool, name: &str| {
            let count = blocks.iter().filter(|(block, _)| block.is_stream == is_stream).count();
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

/// Enough samples per channel, and the minimum: a picture has thousands of similar ones.
const FOR_EACH: usize = 4;
const FEWEST: usize = 4096;
/// Maximum size of a block's sums, and of all: each cut needs them again.
const MOST_BYTES: usize = 256 << 20;
const MOST_OF_ALL: usize = 512 << 20;

/// The size of a block's sums: half of a square for each half of the rows.
fn bytes(block: &Block) -> usize {
    block.readers.len() * block.width * (block.width + 1) * size_of::<f64>()
}

/// Splits blocks into those whose sums fit the memory, in their order, and the others.
fn affordable(blocks: Vec<Block>) -> (Vec<Block>, Vec<Block>) {
    let mut room = MOST_OF_ALL;
    blocks.into_iter().partition(|block| {
        let fits = bytes(block) <= room;
        room -= if fits { bytes(block) } else { 0 };
        fits
    })
}

/// Sums the inputs of each reader of every block.
fn gather(
    workshop: &Workshop,
    draft: &Draft,
    rows: &Rows,
    (blocks, progress): (&mut [Block], &dyn Progress),
) -> Result<(), Error> {
    let values: BTreeSet<&String> =
        blocks.iter().flat_map(|block| &block.readers).map(|reader| &reader.value).collect();
    let values: Vec<String> = values.into_iter().cloned().collect();
    for block in blocks.iter_mut() {
        let gram = |reader: &Reader| Gram::new(block.width, is_shiftable(reader.reading));
        block.grams = block.readers.iter().map(gram).collect();
    }
    inner_values(workshop, (draft, &values), (rows, progress), |chunks, made| {
        for block in blocks.iter_mut() {
            for (reader, gram) in block.readers.iter().zip(&mut block.grams) {
                let Ok(place) = values.binary_search(&reader.value) else { continue };
                add(gram, (&made[place], reader, block.width), chunks)?;
            }
        }
        Ok(())
    })?;
    blocks.iter_mut().flat_map(|block| &mut block.grams).for_each(Gram::settle);
    Ok(())
}

fn is_shiftable(reading: Reading) -> bool {
    match reading {
        Reading::Weighted(layer) => !layer.is_padded,
        Reading::Sum | Reading::Mean => true,
    }
}

/// Adds samples of a value, spread evenly over it.
fn add(
    gram: &mut Gram,
    (value, reader, width): (&Tensor, &Reader, usize),
    (chunk, chunks): (usize, usize),
) -> Result<(), Error> {
    let (values, outer) = (value.as_f32()?, value.shape()[..reader.channels.axis].iter().product::<usize>());
    let inner = values.len() / (outer * width).max(1);
    let wanted = (width * FOR_EACH).max(FEWEST).div_ceil(chunks);
    for base in spread((outer * inner, wanted), (width, inner), chunk) {
        gram.add(chunk, (0..width).map(|channel| values[base + channel * inner]));
    }
    Ok(())
}

/// The indices of the first channel of samples, spread evenly over a value with so many places. Each chunk begins at another
/// place, so that samples cover the whole picture.
pub(crate) fn spread(
    (places, wanted): (usize, usize),
    (width, inner): (usize, usize),
    chunk: usize,
) -> impl Iterator<Item = usize> {
    let wanted = wanted.min(places);
    (0..wanted).map(move |at| {
        let place = (at * places / wanted + chunk * 31) % places;
        place / inner * width * inner + place % inner
    })
}
