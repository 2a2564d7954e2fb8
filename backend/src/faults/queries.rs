//! Names queries by their inputs, so that all workers agree on a query's factor without exchanging it.
//!
//! The name is a hash of the bytes of one row of each input. A query therefore has the same name alone, in a batch, as a
//! copy and for a stand-in. A parity query is a sum of queries with bytes of its own: a worker cannot see its members, so
//! it draws a factor of its own, where a simulation takes the longest member's.

use parm_protocol::Tensor;

/// Returns the name of each row.
pub(super) fn names(inputs: &[Tensor]) -> impl Iterator<Item = u64> {
    let rows = inputs.first().map_or(0, Tensor::rows);
    (0..rows).map(move |row| inputs.iter().fold(SEED, |hash, input| continued(hash, input, row)))
}

/// Continues a hash (64-bit FNV-1a) with a row of an input. An input without this row counts as a whole.
fn continued(hash: u64, input: &Tensor, row: usize) -> u64 {
    let row = input.slice_rows(row, 1);
    let bytes = row.as_ref().unwrap_or(input).data();
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

const SEED: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(rows: usize, values: &[f32]) -> Tensor {
        Tensor::from_f32([rows, values.len() / rows].as_slice(), values).unwrap()
    }

    #[test]
    fn row_has_the_same_name_alone_and_in_a_batch() {
        let (image, text) = (tensor(3, &[1., 2., 3., 4., 5., 6.]), tensor(3, &[7., 8., 9.]));
        let all: Vec<u64> = names(&[image.clone(), text.clone()]).collect();
        let alone = |row| {
            let inputs = [&image, &text].map(|input| input.slice_rows(row, 1).unwrap());
            names(&inputs).collect::<Vec<_>>()
        };
        assert_eq!([0, 1, 2].map(alone).concat(), all);
        assert!(all[0] != all[1] && all[1] != all[2]);
        assert_ne!(
            names(&[image, tensor(3, &[7., 8., 0.])]).last(),
            all.last().copied(),
            "each input counts"
        );
    }
}
