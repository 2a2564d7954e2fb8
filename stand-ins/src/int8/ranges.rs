//! The ranges of values, gathered by running the graph.
//!
//! Percentiles need all values or a histogram, and a histogram with even steps needs the range in advance. Floats
//! carry their own scale: their upper 16 bits order them with a precision of 1/256. One counter per prefix, 65,536 in
//! all, covers any range and never has to be merged.
//!
//! Large pictures have millions of values in every layer, and counting them takes longer than running the network. A
//! sample of them gives the shares; only the extremes are taken from all values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use parm_parity_models::onnx::rewrite::Draft;

use super::{Layer, Points, Steps};
use crate::Error;
use crate::graph::{Links, inner_values};
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

/// Rows of an input that are counted together.
const TOGETHER: usize = 4;

/// Settings of a copy: the shares of values that ranges leave out (one for all values, exceptions for some), the
/// steps of weights, and the layers that stay in 32 bits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cuts {
    all: f64,
    own: BTreeMap<String, f64>,
    pub(crate) steps: Steps,
    /// Layers that stay in 32 bits, by their outputs.
    left: BTreeSet<String>,
}

impl Cuts {
    pub(crate) fn of(all: f64) -> Self {
        Self { all, ..Self::default() }
    }

    pub(crate) fn with(&self, value: &str, share: f64) -> Self {
        let mut cuts = self.clone();
        cuts.own.insert(value.to_owned(), share);
        cuts
    }

    pub(crate) fn in_steps(&self, steps: Steps) -> Self {
        Self { steps, ..self.clone() }
    }

    /// The same, except for layers that stay in 32 bits.
    pub(crate) fn leaving(&self, layers: &BTreeSet<String>) -> Self {
        Self { left: layers.clone(), ..self.clone() }
    }

    /// Whether the layer that makes a value stays in 32 bits.
    pub(super) fn leaves(&self, made: &str) -> bool {
        self.left.contains(made)
    }

    /// The share that a value's range leaves out.
    pub(crate) fn share(&self, value: &str) -> f64 {
        self.own.get(value).copied().unwrap_or(self.all)
    }
}

impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| (share * 1e5).round() / 1e3;
        write!(f, "ranges leave out {} % of the values", percent(self.all))?;
        let own: Vec<f64> =
            self.own.values().copied().filter(|share| *share != self.all).map(percent).collect();
        let listed: Vec<String> = own.iter().map(f64::to_string).collect();
        if !own.is_empty() {
            write!(f, ", of some {}", listed.join(" and "))?;
        }
        if self.steps == Steps::Half {
            write!(f, ", weights in 7 bits")?;
        }
        match self.left.len() {
            0 => Ok(()),
            1 => write!(f, ", one layer in 32 bits"),
            count => write!(f, ", {count} layers in 32 bits"),
        }
    }
}

/// Tallies of the values whose ranges a quantised graph needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(BTreeMap<String, Tally>);

impl Ranges {
    /// Scale and zero point that map a value's range, less the share left out, to 0..=255. Zero is in every range and
    /// exact, since padding consists of zeros.
    pub(super) fn mapping(&self, value: &str, cuts: &Cuts) -> Option<(f32, u8)> {
        let (low, high) = self.0.get(value)?.range(cuts.share(value))?;
        let (low, high) = (low.min(0.0), high.max(0.0));
        let scale = (high - low) / 255.0;
        if !scale.is_normal() {
            return None;
        }
        Some((scale, (-low / scale).round_ties_even().clamp(0.0, 255.0) as u8))
    }
}

/// The values whose ranges a copy needs.
pub(crate) fn measured(draft: &Draft, cuts: &Cuts) -> BTreeSet<String> {
    let points = Points::of(draft, &Links::of(draft));
    let is_light =
        |layer: &&Layer| !draft.nodes[layer.at].only_output().is_some_and(|made| cuts.leaves(made));
    let layers = points.layers.iter().filter(is_light);
    let values =
        layers.flat_map(|layer| draft.nodes[layer.at].at(0).into_iter().chain(layer.output.as_deref()));
    values.filter_map(|value| points.values.get(value)).cloned().collect()
}

/// Runs the graph on calibration rows and tallies every value that a quantised copy needs.
pub(crate) fn gather(
    workshop: &Workshop,
    draft: &Draft,
    rows: &Rows,
    progress: &dyn Progress,
) -> Result<Ranges, Error> {
    let points = Points::of(draft, &Links::of(draft));
    let values: BTreeSet<String> = points.values.into_values().collect();
    let inputs: BTreeSet<String> = rows.sizes().map(|(name, _)| name.to_owned()).collect();
    let values: Vec<String> = values.difference(&inputs).cloned().collect();
    let mut ranges = Ranges::default();
    let mut tally = |name: &str, tensor: &parm_protocol::Tensor| -> Result<(), Error> {
        ranges.0.entry(name.to_owned()).or_default().add(&tensor.as_f32()?);
        Ok(())
    };
    // Engines do not return an input as an output.
    for (place, name) in rows.sizes().map(|(name, _)| name.to_owned()).enumerate() {
        for start in (0..rows.len()).step_by(TOGETHER) {
            progress.check()?;
            let some = rows.slice(start, TOGETHER.min(rows.len() - start))?;
            if some[place].datatype() == parm_protocol::DataType::Fp32 {
                tally(&name, &some[place])?;
            }
        }
    }
    if !values.is_empty() {
        inner_values(workshop, (draft, &values), (rows, progress), |_, made| {
            values.iter().zip(&made).try_for_each(|(name, tensor)| tally(name, tensor))
        })?;
    }
    Ok(ranges)
}

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
    use std::cell::Cell;

    use parm_parity_models::onnx::{Builder, Dense, Value};
    use parm_protocol::Tensor;

    use super::*;
    use crate::testing::Stage;

    /// Stops after this many questions.
    struct Patience(Cell<usize>);

    impl Progress for Patience {
        fn doing(&self, _: &str) {}

        fn is_stopped(&self) -> bool {
            let left = self.0.get();
            self.0.set(left.saturating_sub(1));
            left == 0
        }
    }

    #[test]
    fn interrupt_ends_runs_that_gather_ranges() {
        let (mut builder, x) = Builder::reading("network", 3, Value::batch_of_f32("x", &[4]));
        let inner = builder.dense("inner", &x, Dense { inputs: 4, outputs: 8 }).unwrap();
        builder.dense("y", &inner, Dense { inputs: 8, outputs: 2 }).unwrap();
        builder.output(Value::batch_of_f32("y", &[2]));
        let (stage, model) = (Stage::new(), builder.build().unwrap());
        let values = parm_random::Random::new(2).normals(4 * 12);
        let rows = stage.rows(&model, &[Tensor::from_f32([12, 4].as_slice(), &values).unwrap()]);
        let draft = Draft::new(&model).unwrap();
        let stopped =
            |asked| gather(&stage.workshop, &draft, &rows, &Patience(Cell::new(asked))).unwrap_err();
        // Three times for the input, three for runs.
        for asked in [0, 3, 5] {
            assert_eq!(stopped(asked), Error::Stopped, "{asked}");
        }
        assert!(gather(&stage.workshop, &draft, &rows, &Patience(Cell::new(6))).is_ok());
    }

    #[test]
    fn cuts_show_the_share_of_a_single_value() {
        let cuts = Cuts::of(1e-4).with("x", 1e-3).with("y", 1e-4);
        assert_eq!((cuts.share("x"), cuts.share("y"), cuts.share("z")), (1e-3, 1e-4, 1e-4));
        assert_eq!(cuts.to_string(), "ranges leave out 0.01 % of the values, of some 0.1");
        assert_eq!(Cuts::of(0.0).to_string(), "ranges leave out 0 % of the values");
        let left = BTreeSet::from(["y".to_owned(), "z".to_owned()]);
        let cuts = Cuts::of(0.0).in_steps(Steps::Half).leaving(&left);
        assert!(cuts.leaves("y") && !cuts.leaves("x"));
        assert_eq!(
            cuts.to_string(),
            "ranges leave out 0 % of the values, weights in 7 bits, 2 layers in 32 bits"
        );
    }

    #[test]
    fn counters_are_ordered_by_number() {
        let numbers = [-1e30, -2.0, -1.0, -1e-20, 0.0, 1e-20, 0.5, 1.0, 3e8];
        assert!(numbers.windows(2).all(|pair| place(pair[0]) < place(pair[1])));
        for number in numbers.into_iter().filter(|number| *number != 0.0) {
            assert!((middle(place(number)) / number - 1.0).abs() < 1.0 / 128.0, "{number}");
        }
    }

    #[test]
    fn range_leaves_out_a_share_of_a_sample_but_keeps_all_extremes() {
        let mut tally = Tally::default();
        tally.add(&(0..10_000).map(|step| step as f32 / 10.0).collect::<Vec<_>>());
        tally.add(&[f32::NAN, f32::INFINITY]);
        assert_eq!((tally.range(0.0), Tally::default().range(0.1)), (Some((0.0, 999.9)), None));
        let mut random = parm_random::Random::new(2);
        let mut values: Vec<f32> = (0..4 * COUNTED).map(|_| random.below(1000) as f32).collect();
        // Two of so many are unlikely to be in the sample.
        (values[1], values[2]) = (-5e3, 5e3);
        let mut sampled = Tally::default();
        sampled.add(&values);
        assert!(sampled.total < 2 * COUNTED as u64);
        assert_eq!(sampled.range(0.0), Some((-5e3, 5e3)));
        for (tally, off) in [(tally, [1.0, 4.0]), (sampled, [5.0, 8.0])] {
            let (low, high) = tally.range(0.2).unwrap();
            assert!((low - 100.0).abs() < off[0] && (high - 900.0).abs() < off[1], "{low} to {high}");
        }
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
