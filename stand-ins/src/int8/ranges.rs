//! The ranges of values, gathered by running the graph.

use std::collections::{BTreeMap, BTreeSet};

use parm_parity_models::onnx::rewrite::Draft;

use super::points::Points;
use super::tally::Tally;
use super::write::Scope;
use crate::Error;
use crate::graph::{Links, probe, types};
use crate::rows::Rows;
use crate::workshop::Workshop;

/// Rows that run together while values are gathered: the values of all of them are in memory at once.
const TOGETHER: usize = 4;

/// What was seen of each value that a quantised graph wants to know the range of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(BTreeMap<String, Tally>);

impl Ranges {
    /// Scale and zero point that map the range of a value, less the share that is left out, to 0..=255. Zero is in every
    /// range, and exact: padding is made of zeros.
    pub(super) fn mapping(&self, value: &str, left_out: f64) -> Option<(f32, u8)> {
        let (low, high) = self.0.get(value)?.range(left_out)?;
        let (low, high) = (low.min(0.0), high.max(0.0));
        let scale = (high - low) / 255.0;
        if !scale.is_normal() {
            return None;
        }
        Some((scale, (-low / scale).round_ties_even().clamp(0.0, 255.0) as u8))
    }
}

/// Runs the graph on calibration rows and tallies every value that a quantised copy has to know.
pub(crate) fn gather(workshop: &Workshop, draft: &Draft, rows: &Rows) -> Result<Ranges, Error> {
    let points = Points::of(draft, &Links::of(draft), Scope::All);
    let values: BTreeSet<String> = points.values.into_values().collect();
    let inputs: BTreeSet<String> = rows.sizes().map(|(name, _)| name.to_owned()).collect();
    let values: Vec<String> = values.difference(&inputs).cloned().collect();
    let mut ranges = Ranges::default();
    let mut tally = |name: &str, tensor: &parm_protocol::Tensor| -> Result<(), Error> {
        ranges.0.entry(name.to_owned()).or_default().add(&tensor.as_f32()?);
        Ok(())
    };
    // An engine does not hand an input through as an output.
    for (place, name) in rows.sizes().map(|(name, _)| name.to_owned()).enumerate() {
        let all = rows.slice(0, rows.len())?;
        if all[place].datatype() == parm_protocol::DataType::Fp32 {
            tally(&name, &all[place])?;
        }
    }
    if !values.is_empty() {
        let model = probe(draft, &values, &types(draft))?;
        let mut runner = workshop.load("ranges", model.bytes())?;
        for start in (0..rows.len()).step_by(TOGETHER) {
            let made = runner.run(rows, start..(start + TOGETHER).min(rows.len()))?;
            for (name, tensor) in values.iter().zip(&made) {
                tally(name, tensor)?;
            }
        }
    }
    Ok(ranges)
}
