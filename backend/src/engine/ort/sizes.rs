//! Sessions for fixed numbers of rows, for convolutions on a card.
//!
//! *Problem.* Since version 1.20 ONNX Runtime plans a convolution anew whenever its shape differs from that of the run
//! before (its issue 23006): on an H200 a ResNet-18 then takes 36 to 62 ms instead of 1.3. Batches differ all the time.
//!
//! *Choice.* A session for each of a few numbers of rows. Batches of other sizes are filled up or split
//! ([`mod@crate::engine::listed`]), which needs independent rows. Each session has the weights, so their number is bounded by
//! memory.
//!
//! *Rejected.* A session for each shape that occurs: 64 batch sizes need 64 sessions. Other open dimensions, such as the
//! size of an image, are therefore still planned for each run.

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

/// The place of the session for so many rows: the first that has room for them, or the last.
pub(super) fn place(rows: usize, sizes: &[usize]) -> usize {
    sizes.partition_point(|&size| size < rows).min(sizes.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_to_the_session_of_their_size() {
        for (rows, expected) in [(1, 0), (2, 1), (4, 2), (8, 3), (3, 2), (9, 3), (0, 0)] {
            assert_eq!(place(rows, &[1, 2, 4, 8]), expected, "{rows} rows");
        }
        assert_eq!(place(5, &[]), 0, "one session takes all");
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
