//! How often values of each size were seen, in bounded memory and one pass.
//!
//! Percentiles need all values or a histogram, and a histogram of even steps needs the range before the first value comes.
//! Floats carry a scale of their own: their upper 16 bits order them with a precision of 1/256. A counter for each of the
//! 65,536 prefixes takes any range and is never merged.
//!
//! Large pictures have millions of values in every layer, and counting them all takes longer than running the network. Of
//! so many a part says what share lies where; only the extremes are looked for among all.

/// So many values of those that come together are counted, about.
const COUNTED: usize = 1 << 16;

/// Counters by the upper bits of the numbers, least number first.
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
    /// Counts values, of very many a part; what is no number is not counted.
    pub(crate) fn add(&mut self, values: &[f32]) {
        for &value in values.iter().filter(|value| value.is_finite()) {
            self.least = self.least.min(value);
            self.greatest = self.greatest.max(value);
        }
        // One of each run, at a place by chance: in step, some channels would never be counted.
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

    /// The range that leaves a share of the values out, half of it at either end; none where nothing was counted.
    pub(crate) fn range(&self, left_out: f64) -> Option<(f32, f32)> {
        let aside = (self.total as f64 * left_out / 2.0) as u64;
        let (low, high) = (self.beyond(aside, 0..1 << 16)?, self.beyond(aside, (0..1 << 16).rev())?);
        // A prefix stands for its numbers by their middle; nothing is wider than what was seen.
        let low = middle(low).clamp(self.least, self.greatest);
        let high = middle(high).clamp(self.least, self.greatest);
        match aside {
            0 => Some((self.least, self.greatest)),
            _ => Some((low, high)),
        }
    }

    /// The first counter, in this order, that holds more than so many values together with those before it.
    fn beyond(&self, aside: u64, mut places: impl Iterator<Item = usize>) -> Option<usize> {
        let mut seen = 0;
        places.find(|&place| {
            seen += u64::from(self.counts[place]);
            seen > aside
        })
    }
}

/// The counter of a number: negative ones run backwards.
fn place(value: f32) -> usize {
    let upper = (value.to_bits() >> 16) as u16;
    usize::from(if upper & 0x8000 == 0 { upper | 0x8000 } else { !upper })
}

/// The number in the middle of those of a counter.
fn middle(place: usize) -> f32 {
    let place = place as u16;
    let upper = if place & 0x8000 == 0 { !place } else { place & 0x7fff };
    f32::from_bits(u32::from(upper) << 16 | 0x8000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_in_the_order_of_the_numbers() {
        let numbers = [-1e30, -2.0, -1.0, -1e-20, 0.0, 1e-20, 0.5, 1.0, 3e8];
        assert!(numbers.windows(2).all(|pair| place(pair[0]) < place(pair[1])));
        for number in numbers.into_iter().filter(|number| *number != 0.0) {
            assert!((middle(place(number)) / number - 1.0).abs() < 1.0 / 128.0, "{number}");
        }
    }

    #[test]
    fn a_range_leaves_the_share_out_that_is_asked_for() {
        let mut tally = Tally::default();
        tally.add(&(0..10_000).map(|step| step as f32 / 10.0).collect::<Vec<_>>());
        tally.add(&[f32::NAN, f32::INFINITY]);
        assert_eq!(tally.range(0.0), Some((0.0, 999.9)));
        let (low, high) = tally.range(0.2).unwrap();
        assert!((low - 100.0).abs() < 1.0 && (high - 900.0).abs() < 4.0, "{low} to {high}");
        assert_eq!(Tally::default().range(0.1), None);
    }

    #[test]
    fn of_very_many_values_a_part_tells_the_shares_and_all_the_extremes() {
        let mut random = parm_random::Random::new(2);
        let mut values: Vec<f32> = (0..4 * COUNTED).map(|_| random.below(1000) as f32).collect();
        // Two of so many are hardly met by chance.
        (values[1], values[2]) = (-5e3, 5e3);
        let mut tally = Tally::default();
        tally.add(&values);
        assert!(tally.total < 2 * COUNTED as u64);
        assert_eq!(tally.range(0.0), Some((-5e3, 5e3)));
        let (low, high) = tally.range(0.2).unwrap();
        assert!((low - 100.0).abs() < 5.0 && (high - 900.0).abs() < 8.0, "{low} to {high}");
    }

    #[test]
    fn no_channel_is_passed_over_whatever_its_place() {
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
