//! The cost of losses in pairs: a prediction's score less the score of its reconstruction.
//!
//! Both sides use the same rows, so rows that are hard for both do not add to the difference, and the interval is
//! narrower than that of two scores over different rows. Reconstructions of one group come from one parity and err
//! together, so a group counts as one observation.

/// The losses of all groups.
pub(crate) struct Pairs {
    by_group: Vec<f64>,
    count: u64,
}

impl Pairs {
    pub(crate) fn new(groups: usize) -> Self {
        Self { by_group: vec![0.0; groups], count: 0 }
    }

    pub(crate) fn add(&mut self, group: usize, prediction: f64, reconstruction: f64) {
        self.by_group[group] += prediction - reconstruction;
        self.count += 1;
    }

    /// The standard error of the mean loss; `None` for a single group.
    pub(crate) fn error(&self) -> Option<f64> {
        let groups = self.by_group.len() as f64;
        if groups < 2.0 || self.count == 0 {
            return None;
        }
        let mean = self.by_group.iter().sum::<f64>() / groups;
        let square: f64 = self.by_group.iter().map(|loss| (loss - mean).powi(2)).sum();
        Some((square / (groups - 1.0) * groups).sqrt() / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_both_get_wrong_do_not_widen_the_interval() {
        let mut pairs = Pairs::new(4);
        for group in 0..4 {
            pairs.add(group, f64::from(u8::from(group % 2 == 0)), f64::from(u8::from(group % 2 == 0)));
        }
        assert_eq!(pairs.error(), Some(0.0));
    }

    #[test]
    fn losses_of_one_group_count_once() {
        // A hundred losses of one in four: independent, and four to a group in every fourth group.
        let (mut apart, mut together) = (Pairs::new(400), Pairs::new(100));
        for at in 0..400 {
            apart.add(at, 1.0, f64::from(u8::from(at % 4 != 0)));
            together.add(at / 4, 1.0, f64::from(u8::from(at / 4 % 4 != 0)));
        }
        let (apart, together) = (apart.error().unwrap(), together.error().unwrap());
        assert!((apart - (0.25_f64 * 0.75 / 400.0).sqrt()).abs() < 1e-4, "{apart}");
        assert!((together / apart - 2.0).abs() < 0.01, "{together} and {apart}");
    }

    #[test]
    fn one_group_has_no_interval() {
        let mut pairs = Pairs::new(1);
        pairs.add(0, 1.0, 0.0);
        assert_eq!(pairs.error(), None);
    }
}
