//! Parts of a run: the rows of a text model that share the memory of one run.
//!
//! Rows of a run are padded to the longest, so one long text among a thousand short ones would make a request of some
//! kilobytes take the memory of a thousand long texts. A part ends where padding and the scores of attention, one for each
//! pair of tokens of a row, would exceed a bound. A row that exceeds it alone runs alone.

use std::ops::Range;

/// Most pairs of tokens of a run: those of 128 rows of 512 tokens.
const MOST_PAIRS: usize = 1 << 25;

/// Splits rows of so many tokens into parts, in order.
pub(super) fn of(lengths: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let (mut parts, mut start, mut end, mut longest) = (Vec::new(), 0usize, 0usize, 0usize);
    for length in lengths {
        let with = longest.max(length);
        let rows = end + 1 - start;
        let fits = rows.saturating_mul(with.saturating_mul(with)) <= MOST_PAIRS;
        if rows > 1 && !fits {
            parts.push(start..end);
            (start, longest) = (end, length);
        } else {
            longest = with;
        }
        end += 1;
    }
    parts.push(start..end);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_row_does_not_lengthen_all_others() {
        let parts = of(std::iter::once(8192).chain(std::iter::repeat_n(4, 1023)));
        assert_eq!(parts, [0..1, 1..1024]);
        assert_eq!(of(std::iter::repeat_n(512, 300)), [0..128, 128..256, 256..300]);
        assert_eq!(of([usize::MAX, usize::MAX].into_iter()), [0..1, 1..2]);
        assert_eq!(of([1, 2].into_iter()), [Range { start: 0, end: 2 }]);
        assert_eq!(of(std::iter::empty()), [Range { start: 0, end: 0 }]);
    }
}
