//! Sessions for fixed numbers of rows, for convolutions on a card.
//!
//! *Problem.* Since version 1.20 ONNX Runtime plans a convolution anew whenever its shape differs from that of the run
//! before (its issue 23006): on an H200 a ResNet-18 then takes 36 to 62 ms instead of 1.3. Batches differ all the time.
//!
//! *Choice.* A session for each of a few numbers of rows. Batches of other sizes are filled up or split,
//! which needs independent rows. Each session has the weights, so their number is bounded by
//! memory.
//!
//! *Rejected.* A session for each shape that occurs: 64 batch sizes need 64 sessions. Other open dimensions, such as the
//! size of an image, are therefore still planned for each run.

use parm_protocol::Tensor;

use crate::Error;
use crate::engine::joined;

/// Most memory for the weights of all sessions of an instance.
const MOST_BYTES: u64 = 2 << 30;

/// The sizes among those wanted that a model of this many bytes may have: all of them, or evenly chosen ones.
pub(super) fn affordable(wanted: &[usize], bytes: u64) -> Vec<usize> {
    let most = (MOST_BYTES / bytes.max(1)).min(wanted.len() as u64) as usize;
    match most {
        // One session is what it has anyway.
        0 | 1 => Vec::new(),
        most => (0..most).map(|at| wanted[at * (wanted.len() - 1) / (most - 1)]).collect(),
    }
}

/// A session's share of the card's memory: its weights, and a part of the rest by its rows.
pub(super) fn shares(sizes: &[usize], bytes: u64, memory: usize) -> Vec<usize> {
    let weights = usize::try_from(bytes).unwrap_or(usize::MAX);
    let rest = memory.saturating_sub(weights.saturating_mul(sizes.len()));
    let rows: usize = sizes.iter().sum();
    sizes
        .iter()
        .map(|&size| weights.saturating_add((rest as u128 * size as u128 / rows.max(1) as u128) as usize))
        .collect()
}

/// Runs rows in the sessions of these sizes, in ascending order; `run` takes the place of a session.
///
/// A batch of another size gets copies of its last row up to the next size, and their outputs are dropped: a copy is valid
/// wherever the row is, which zeros may not be. A batch above the largest size runs in several parts. Frontends need not
/// know the sizes: they measure that a batch of three takes as long as one of four.
pub(super) fn run_in(
    sizes: &[usize],
    inputs: &[Tensor],
    mut run: impl FnMut(usize, &[Tensor]) -> Result<Vec<Tensor>, Error>,
) -> Result<Vec<Tensor>, Error> {
    let rows = inputs.first().map_or(0, Tensor::rows);
    let Some(&largest) = sizes.last().filter(|_| rows > 0) else { return run(0, inputs) };
    let mut parts = Vec::new();
    for start in (0..rows).step_by(largest) {
        let count = (rows - start).min(largest);
        let at = sizes.partition_point(|&size| size < count);
        let size = sizes[at];
        let filled = |input: &Tensor| {
            let part = input.slice_rows(start, count)?;
            let copies = std::iter::repeat_n(part.slice_rows(count - 1, 1)?, size - count);
            Tensor::concat_rows(&std::iter::once(part).chain(copies).collect::<Vec<_>>())
        };
        let filled = inputs.iter().map(filled).collect::<Result<Vec<_>, _>>()?;
        let outputs = run(at, &filled)?;
        if let Some(odd) = outputs.iter().find(|output| output.rows() != size) {
            return Err(Error::Run { message: format!("{size} rows given, {} returned", odd.rows()) });
        }
        let own = outputs.iter().map(|output| output.slice_rows(0, count));
        parts.push(own.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(joined(&parts)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_run_in_the_session_of_the_next_size_or_in_parts() {
        // The place of the session and the number of rows of the run, after the row itself.
        let sums = |sizes: &[usize], rows: u8| {
            let values: Vec<f32> = (0..rows).map(|row| 100.0 * f32::from(row)).collect();
            let input = Tensor::from_f32([rows.into(), 1].as_slice(), &values).unwrap();
            let outputs = run_in(sizes, &[input], |at, inputs| {
                let add = 10.0 * at as f32 + inputs[0].rows() as f32;
                let values: Vec<f32> = inputs[0].as_f32().unwrap().iter().map(|value| value + add).collect();
                Ok(vec![Tensor::from_f32(inputs[0].shape(), &values).unwrap()])
            });
            outputs.unwrap()[0].as_f32().unwrap().to_vec()
        };
        assert_eq!(sums(&[1, 4], 1), [1.0]);
        assert_eq!(sums(&[1, 4], 2), [14.0, 114.0]);
        assert_eq!(sums(&[4], 4), [4.0, 104.0, 204.0, 304.0]);
        assert_eq!(sums(&[], 3), [3.0, 103.0, 203.0], "one session takes all");
        assert_eq!(sums(&[2, 4], 5), [14.0, 114.0, 214.0, 314.0, 402.0], "in two parts");
        assert_eq!(sums(&[2, 4], 0), [0.0; 0]);
    }

    #[test]
    fn large_models_get_fewer_sizes() {
        let wanted = [1, 2, 4, 8, 16, 32, 64];
        assert_eq!(affordable(&wanted, 46 << 20), wanted);
        assert_eq!(affordable(&wanted, 700 << 20), [1, 64]);
        assert_eq!(affordable(&wanted, 500 << 20), [1, 4, 16, 64]);
        assert!(affordable(&wanted, 2 << 30).is_empty());
        assert_eq!(affordable(&[1], 1), [0; 0]);
    }

    #[test]
    fn memory_of_a_card_is_shared_by_rows() {
        let shares = shares(&[1, 3], 100, 1000);
        assert_eq!(shares, [300, 700]);
        assert_eq!(super::shares(&[1, 3], 600, 1000), [600, 600]);
    }
}
