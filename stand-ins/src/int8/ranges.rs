//! The ranges of values, gathered by running the graph.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use parm_parity_models::onnx::rewrite::Draft;

use super::points::Points;
use super::tally::Tally;
use super::weights::Steps;
use super::write::Scope;
use crate::Error;
use crate::graph::{Links, Survey, probe, types};
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

/// Rows per run while values are gathered, if all their values fit the memory.
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
    /// The same share for every value.
    pub(crate) fn of(all: f64) -> Self {
        Self { all, ..Self::default() }
    }

    /// The same, except for one value.
    pub(crate) fn with(&self, value: &str, share: f64) -> Self {
        let mut cuts = self.clone();
        cuts.own.insert(value.to_owned(), share);
        cuts
    }

    /// The same with these steps of weights.
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
pub(crate) fn measured(draft: &Draft, scope: Scope) -> BTreeSet<String> {
    Points::of(draft, &Links::of(draft), scope).values.into_values().collect()
}

/// Runs the graph on calibration rows and tallies every value that a quantised copy needs.
pub(crate) fn gather(
    workshop: &Workshop,
    draft: &Draft,
    rows: &Rows,
    progress: &dyn Progress,
) -> Result<Ranges, Error> {
    let points = Points::of(draft, &Links::of(draft), Scope::All);
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
        let bytes = Survey::bytes(workshop, draft, &values, rows);
        let together = workshop.returning(TOGETHER, bytes)?;
        let model = probe(draft, &values, &types(draft))?;
        let mut runner = workshop.load("ranges", model.bytes())?;
        runner.run_all(rows, (together, progress), |_, made| {
            values.iter().zip(&made).try_for_each(|(name, tensor)| tally(name, tensor))
        })?;
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use parm_parity_models::onnx::{Builder, Dense, Value};
    use parm_protocol::Tensor;

    use super::*;
    use crate::int8::correct;
    use crate::testing::{Alone, Stage};

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
    fn interrupt_ends_runs_that_gather_ranges_and_errors() {
        let mut builder = Builder::new("network", 3);
        let x = builder.input(Value::batch_of_f32("x", &[4]));
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
        let ranges = gather(&stage.workshop, &draft, &rows, &Patience(Cell::new(6))).unwrap();
        let cuts = Cuts::of(0.0);
        let corrected = |progress: &dyn Progress| {
            let how = (&ranges, Scope::All, &cuts);
            correct(&stage.workshop, &draft, (&rows, progress), how).map(|_| ())
        };
        assert_eq!(corrected(&Patience(Cell::new(2))), Err(Error::Stopped));
        assert_eq!(corrected(&Alone), Ok(()));
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
}
