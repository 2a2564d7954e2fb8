//! What losses cost, pair by pair: what a prediction scores less what the reconstruction in its place does.
//!
//! The same rows are on both sides, so what is hard for either is no part of the difference, and its interval is narrower than
//! that of two numbers of different rows. Reconstructions of one group come from the same parity and err together, so a group
//! counts as one observation.

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

    /// The standard error of the mean loss; `None` where one group is all there is.
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
    fn what_both_get_wrong_makes_an_interval_no_wider() {
        let mut pairs = Pairs::new(4);
        for group in 0..4 {
            pairs.add(group, f64::from(u8::from(group % 2 == 0)), f64::from(u8::from(group % 2 == 0)));
        }
        assert_eq!(pairs.error(), Some(0.0));
    }

    #[test]
    fn losses_that_come_together_count_once() {
        // A hundred losses of one in four: by themselves, and four to a group in every fourth group.
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
