//! Runs rows through the graph and sums the inputs of the blocks' readers.

use std::collections::BTreeSet;

use parm_parity_models::onnx::rewrite::Draft;
use parm_protocol::Tensor;

use super::gram::Gram;
use super::region::{Block, Reader, Reading};
use crate::Error;
use crate::graph::{Survey, probe, types};
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

/// Rows per run, if their values fit the memory.
const TOGETHER: usize = 4;
/// Enough samples per channel, and the minimum: a picture has thousands of similar ones.
const FOR_EACH: usize = 4;
const LEAST: usize = 4096;
/// Maximum size of a block's sums, and of all: each cut needs them again.
pub(super) const MOST_BYTES: usize = 256 << 20;
pub(super) const MOST_OF_ALL: usize = 512 << 20;

/// The size of a block's sums: half of a square for each half of the rows.
pub(super) fn bytes(block: &Block) -> usize {
    block.readers.len() * block.width * (block.width + 1) * size_of::<f64>()
}

/// Splits blocks into those whose sums fit the memory, in their order, and the others.
pub(super) fn affordable(blocks: Vec<Block>) -> (Vec<Block>, Vec<Block>) {
    let mut room = MOST_OF_ALL;
    blocks.into_iter().partition(|block| {
        let fits = bytes(block) <= room;
        room -= if fits { bytes(block) } else { 0 };
        fits
    })
}

/// For every block, the sums over the inputs of each of its readers.
pub(super) fn gather(
    workshop: &Workshop,
    draft: &Draft,
    rows: &Rows,
    (blocks, progress): (&[Block], &dyn Progress),
) -> Result<Vec<Vec<Gram>>, Error> {
    let readers = || blocks.iter().flat_map(|block| &block.readers);
    let values: BTreeSet<&String> = readers().map(|reader| &reader.value).collect();
    let values: Vec<String> = values.into_iter().cloned().collect();
    let together = workshop.returning(TOGETHER, Survey::bytes(workshop, draft, &values, rows))?;
    let mut runner = workshop.load("gram", probe(draft, &values, &types(draft))?.bytes())?;
    let empty = |block: &Block| {
        let gram = |reader: &Reader| Gram::new(block.width, is_shiftable(reader.reading));
        block.readers.iter().map(gram).collect::<Vec<_>>()
    };
    let mut grams: Vec<Vec<Gram>> = blocks.iter().map(empty).collect();
    let chunks = rows.len().div_ceil(together);
    runner.run_all(rows, (together, progress), |chunk, made| {
        for (block, grams) in blocks.iter().zip(&mut grams) {
            for (reader, gram) in block.readers.iter().zip(grams) {
                let Ok(place) = values.binary_search(&reader.value) else { continue };
                add(gram, (&made[place], reader, block.width), (chunk, chunks))?;
            }
        }
        Ok(())
    })?;
    grams.iter_mut().flatten().for_each(Gram::settle);
    Ok(grams)
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
    let places = outer * inner;
    let wanted = (width * FOR_EACH).max(LEAST).div_ceil(chunks).min(places);
    for at in 0..wanted {
        // Each chunk begins at another place, so that samples cover the whole picture.
        let place = (at * places / wanted + chunk * 31) % places;
        let base = place / inner * width * inner + place % inner;
        gram.add(chunk, (0..width).map(|channel| values[base + channel * inner]));
    }
    Ok(())
}
