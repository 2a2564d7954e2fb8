//! Counts values by size in bounded memory and one pass.
//!
//! Percentiles need all values or a histogram, and a histogram with even steps needs the range in advance. Floats
//! carry their own scale: their upper 16 bits order them with a precision of 1/256. One counter per prefix, 65,536 in
//! all, covers any range and never has to be merged.
//!
//! Large pictures have millions of values in every layer, and counting them takes longer than running the network. A
//! sample of them gives the shares; only the extremes are taken from all values.

/// About this many values of one addition are counted.
const COUNTED: usize = 1 << 16;

/// Counters by the upper bits of the numbers, smallest number first.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    counts: Vec<u32>,
    total: u64,
    least: f32,
    greatest: f32,
}

impl Default for Tally {
    fn default() -> Self {
        Self { counts: vec![0; 1 << 16], total: 0, least: f32::INFINITY, greatest: f32::NEG_INFINITY }
    }
}

impl Tally {
    /// Counts values, a sample if there are very many. NaN and infinite values are skipped.
    pub(crate) fn add(&mut self, values: &[f32]) {
        for &value in values.iter().filter(|value| value.is_finite()) {
            self.least = self.least.min(value);
            self.greatest = self.greatest.max(value);
        }
        // One of each run, at a random place: with a fixed step some channels would never be counted.
        let mut chance = 0x9e37_79b9_u32;
        for run in values.chunks((values.len() / COUNTED).max(1)) {
            chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = run[(chance >> 8) as usize % run.len()];
            if value.is_finite() {
                let count = &mut self.counts[place(value)];
                *count = count.saturating_add(1);
                self.total += 1;
            }
        }
    }

    /// The range that leaves out a share of the values, half of it at either end; `None` without values.
    pub(crate) fn range(&self, left_out: f64) -> Option<(f32, f32)> {
        let aside = (self.total as f64 * left_out / 2.0) as u64;
        let (low, high) = (self.beyond(aside, 0..1 << 16)?, self.beyond(aside, (0..1 << 16).rev())?);
        // A prefix stands for the middle of its numbers; the range never exceeds the extremes.
        let low = middle(low).clamp(self.least, self.greatest);
        let high = middle(high).clamp(self.least, self.greatest);
        match aside {
            0 => Some((self.least, self.greatest)),
            _ => Some((low, high)),
        }
    }

    /// The first counter, in this order, at which the running count exceeds `aside`.
    fn beyond(&self, aside: u64, mut places: impl Iterator<Item = usize>) -> Option<usize> {
        let mut seen = 0;
        places.find(|&place| {
            seen += u64::from(self.counts[place]);
            seen > aside
        })
    }
}

/// The counter of a number: negative numbers run backwards.
fn place(value: f32) -> usize {
    let upper = (value.to_bits() >> 16) as u16;
    usize::from(if upper & 0x8000 == 0 { upper | 0x8000 } else { !upper })
}

/// The middle of a counter's numbers.
fn middle(place: usize) -> f32 {
    let place = place as u16;
    let upper = if place & 0x8000 == 0 { !place } else { place & 0x7fff };
    f32::from_bits(u32::from(upper) << 16 | 0x8000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_ordered_by_number() {
        let numbers = [-1e30, -2.0, -1.0, -1e-20, 0.0, 1e-20, 0.5, 1.0, 3e8];
        assert!(numbers.windows(2).all(|pair| place(pair[0]) < place(pair[1])));
        for number in numbers.into_iter().filter(|number| *number != 0.0) {
            assert!((middle(place(number)) / number - 1.0).abs() < 1.0 / 128.0, "{number}");
        }
    }

    #[test]
    fn range_leaves_out_the_given_share() {
        let mut tally = Tally::default();
        tally.add(&(0..10_000).map(|step| step as f32 / 10.0).collect::<Vec<_>>());
        tally.add(&[f32::NAN, f32::INFINITY]);
        assert_eq!(tally.range(0.0), Some((0.0, 999.9)));
        let (low, high) = tally.range(0.2).unwrap();
        assert!((low - 100.0).abs() < 1.0 && (high - 900.0).abs() < 4.0, "{low} to {high}");
        assert_eq!(Tally::default().range(0.1), None);
    }

    #[test]
    fn range_uses_a_sample_for_shares_and_all_for_extremes() {
        let mut random = parm_random::Random::new(2);
        let mut values: Vec<f32> = (0..4 * COUNTED).map(|_| random.below(1000) as f32).collect();
        // Two of so many are unlikely to be in the sample.
        (values[1], values[2]) = (-5e3, 5e3);
        let mut tally = Tally::default();
        tally.add(&values);
        assert!(tally.total < 2 * COUNTED as u64);
        assert_eq!(tally.range(0.0), Some((-5e3, 5e3)));
        let (low, high) = tally.range(0.2).unwrap();
        assert!((low - 100.0).abs() < 5.0 && (high - 900.0).abs() < 8.0, "{low} to {high}");
    }

    #[test]
    fn sample_covers_channels_at_every_place() {
        for (width, place) in [(768, 1), (3, 1), (640, 2), (64, 63)] {
            let mut random = parm_random::Random::new(3);
            let value = |at: usize| {
                let span = if at % width == place { 100.0 } else { 1.0 };
                random.unit() as f32 * span
            };
            let values: Vec<f32> = (0..5 * COUNTED / width * width).map(value).collect();
            let (mut part, mut all) = (Tally::default(), Tally::default());
            part.add(&values);
            values.chunks(COUNTED).for_each(|values| all.add(values));
            assert!(part.total < 2 * COUNTED as u64 && all.total == values.len() as u64);
            let [part, all] = [part, all].map(|tally| tally.range(1e-3).unwrap().1);
            assert!(part > 0.8 * all, "{width}: {part}, and {all} of all");
        }
    }
}
