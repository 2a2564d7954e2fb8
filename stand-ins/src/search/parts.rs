//! Divides the rows: some to make candidates, some to refit weights, some to judge.

use std::collections::BTreeSet;

use parm_protocol::MEASURED_ROWS;
use parm_random::Random;

use super::Wish;

/// The use of each row.
pub(super) struct Parts {
    pub(super) calibration: Vec<usize>,
    pub(super) fitted: Vec<usize>,
    pub(super) judged: Vec<usize>,
    /// The number of rows.
    rows: usize,
}

impl Parts {
    /// Draws rows for making candidates, at most half. At most half of the others are for refitting weights, and the
    /// rest are for judging: enough to measure costs on. The division is random, or follows time.
    pub(super) fn draw(rows: usize, wish: &Wish) -> Self {
        let calibration = wish.calibration.min(rows / 2).max(1).min(rows);
        let others = rows - calibration;
        let fitted = wish.fitted.min(others / 2).min(others.saturating_sub(MEASURED_ROWS[3]));
        let judged = (others - fitted).min(wish.judged.max(MEASURED_ROWS[3]));
        let mut random = Random::new(wish.seed);
        let mut places: Vec<usize> = (0..rows).collect();
        if !wish.in_time {
            random.shuffle(&mut places);
        }
        let judged = places.split_off(rows - judged);
        random.shuffle(&mut places);
        places.truncate(calibration + fitted);
        let fitted = places.split_off(calibration);
        Self { calibration: places, fitted, judged, rows }
    }

    /// Rows to learn from: all except those that choose candidates and those that judge.
    pub(super) fn free(&self) -> Vec<usize> {
        let decisive: BTreeSet<&usize> = self.calibration.iter().chain(&self.judged).collect();
        (0..self.rows).filter(|row| !decisive.contains(row)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::WISH;
    use super::*;

    #[test]
    fn rows_for_making_and_judging_are_disjoint() {
        let parts = Parts::draw(100, &WISH);
        assert_eq!((parts.calibration.len(), parts.fitted.len(), parts.judged.len()), (16, 20, 64));
        assert!(
            parts.free().iter().all(|row| !parts.judged.contains(row) && !parts.calibration.contains(row))
        );
        assert_eq!(parts.free().len(), 20);
        let mut all = [parts.calibration, parts.fitted, parts.judged].concat();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        let in_time = Parts::draw(100, &Wish { in_time: true, ..WISH });
        assert_eq!(in_time.judged, (36..100).collect::<Vec<_>>(), "the newest");
        let few = Parts::draw(20, &WISH);
        assert_eq!((few.calibration.len(), few.fitted.len(), few.judged.len()), (10, 2, 8));
    }
}
