//! Sessions for fixed numbers of rows, for convolutions on a card.
//!
//! *Problem.* Since version 1.20 ONNX Runtime plans a convolution anew whenever its shape differs from that of the run
//! before (its issue 23006): on an H200 a ResNet-18 then takes 36 to 62 ms instead of 1.3. Batches differ all the time.
//!
//! *Choice.* A session for each of a few numbers of rows. A batch goes to the smallest that holds it, filled up with
//! copies of its last row; a batch that is larger than all is split. Each session has the weights, so their number is
//! bounded by memory. Only rows that are shown to be independent are treated so.
//!
//! *Rejected.* A session for each shape that occurs: 64 batch sizes need 64 sessions. Other open dimensions, such as the
//! size of an image, are therefore still planned for each run.

use parm_protocol::Tensor;

use crate::Error;

/// Most memory for the weights of all sessions of an instance.
const MOST_BYTES: u64 = 2 << 30;

/// Part of a batch that one session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    start: usize,
    rows: usize,
    /// The session's place in the list.
    at: usize,
}

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

/// Runs inputs with sessions of these sizes, in ascending order.
pub(super) fn run(
    inputs: &[Tensor],
    sizes: &[usize],
    mut run: impl FnMut(usize, &[Tensor]) -> Result<Vec<Tensor>, Error>,
) -> Result<Vec<Tensor>, Error> {
    let rows = inputs.first().map_or(0, Tensor::rows);
    let parts = parts(rows, sizes);
    if let [Part { rows, at, .. }] = parts[..]
        && sizes[at] == rows
    {
        return run(at, inputs);
    }
    let mut outputs = Vec::with_capacity(parts.len());
    for Part { start, rows, at } in parts {
        let filled: Result<Vec<Tensor>, _> =
            inputs.iter().map(|input| fill(input, start, rows, sizes[at])).collect();
        let answers = run(at, &filled.map_err(failed)?)?;
        let cut = answers.iter().map(|answer| answer.slice_rows(0, rows));
        outputs.push(cut.collect::<Result<Vec<Tensor>, _>>().map_err(failed)?);
    }
    let together = |at: usize| {
        let parts: Vec<Tensor> = outputs.iter().map(|answers| answers[at].clone()).collect();
        Tensor::concat_rows(&parts).map_err(failed)
    };
    (0..outputs.first().map_or(0, Vec::len)).map(together).collect()
}

/// Parts of a batch: full ones of the largest size, and the rest.
fn parts(rows: usize, sizes: &[usize]) -> Vec<Part> {
    let largest = sizes.last().copied().unwrap_or(1);
    let starts = (0..rows.max(1)).step_by(largest);
    let part = |start: usize| {
        let rows = (rows - start).min(largest);
        let at = sizes.partition_point(|&size| size < rows).min(sizes.len() - 1);
        Part { start, rows, at }
    };
    starts.map(part).collect()
}

/// Some rows of a tensor, and copies of the last of them.
fn fill(input: &Tensor, start: usize, rows: usize, size: usize) -> Result<Tensor, parm_protocol::Error> {
    let mut parts = vec![input.slice_rows(start, rows)?];
    if size > rows {
        let last = input.slice_rows(start + rows - 1, 1)?;
        parts.extend(std::iter::repeat_n(last, size - rows));
    }
    Tensor::concat_rows(&parts)
}

fn failed(error: parm_protocol::Error) -> Error {
    Error::Run { message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Doubles each row, and notes which sizes ran.
    fn double(inputs: &[Tensor], sizes: &[usize]) -> (Vec<f32>, Vec<usize>) {
        let mut ran = Vec::new();
        let outputs = run(inputs, sizes, |at, inputs| {
            assert_eq!(inputs[0].rows(), sizes[at]);
            ran.push(sizes[at]);
            let values: Vec<f32> = inputs[0].as_f32().unwrap().iter().map(|value| 2.0 * value).collect();
            Ok(vec![Tensor::from_f32([values.len(), 1].as_slice(), &values).unwrap()])
        });
        (outputs.unwrap()[0].as_f32().unwrap().to_vec(), ran)
    }

    #[test]
    fn batches_of_any_size_are_filled_up_or_split() {
        for (rows, sizes) in [
            (1, vec![1]),
            (2, vec![2]),
            (3, vec![4]),
            (8, vec![8]),
            (9, vec![8, 1]),
            (15, vec![8, 8]),
            (21, vec![8, 8, 8]),
        ] {
            let values: Vec<f32> = (0..rows).map(|row| row as f32).collect();
            let input = Tensor::from_f32([rows, 1].as_slice(), &values).unwrap();
            let (answers, ran) = double(&[input], &[1, 2, 4, 8]);
            assert_eq!(answers, values.iter().map(|value| 2.0 * value).collect::<Vec<_>>());
            assert_eq!(ran, sizes, "{rows} rows");
        }
    }

    #[test]
    fn failed_run_is_an_error_of_the_batch() {
        let input = Tensor::from_f32([3, 1].as_slice(), &[1.0, 2.0, 3.0]).unwrap();
        let failure = Error::Run { message: "no memory".into() };
        assert_eq!(run(&[input], &[2], |_, _| Err(failure.clone())), Err(failure));
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
