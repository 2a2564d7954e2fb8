//! Measures the run time of each model on this machine, as a share of a query's run.
//!
//! The demo emulates service times. A stand-in or a parity model takes the same share of an emulated run that it takes of a
//! real one, and its work counts with that share.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use parm_backend::Embedded;
use parm_protocol::ModelRef;
use parm_protocol::client::Client as _;
use parm_settings::Cost;

/// Costs by model, as shares of a query's run.
#[derive(Clone, Debug, Default)]
pub struct Costs(BTreeMap<String, Cost>);

impl Costs {
    /// Measures the models of an instance; the first is the deployed one.
    pub async fn measured(instance: &Embedded, models: &[String]) -> anyhow::Result<Self> {
        let mut times = Vec::new();
        for model in models {
            let config = instance.model_config(&ModelRef::latest(model)).await?;
            let measured = config.run_times();
            ensure!(
                !measured.is_empty(),
                "'{model}' does not run on blank inputs: name another model with --model"
            );
            times.push((model.clone(), measured));
        }
        let query = *times.first().and_then(|(_, times)| times.first()).context("no model was loaded")?;
        Ok(Self(times.into_iter().map(|(model, times)| (model, cost(&times, query))).collect()))
    }

    /// Returns the cost of a run of this many rows.
    pub fn of(&self, model: &str, rows: usize) -> f64 {
        self.0.get(model).map_or(rows as f64, |cost| cost.of(rows))
    }

    /// Returns every model with the cost of one row.
    pub fn rows(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(model, cost)| (model.as_str(), cost.of(1)))
    }
}

/// Returns the cost of 1, 2, 4 and 8 rows. Sizes that were not measured cost twice as much as half of them.
fn cost(times: &[Duration], query: Duration) -> Cost {
    let mut rows = [1.0; 4];
    for at in 0..rows.len() {
        let last = rows[at.saturating_sub(1)];
        rows[at] =
            times.get(at).map_or(2.0 * last, |time| time.as_secs_f64() / query.as_secs_f64().max(1e-9));
    }
    Cost { rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_as_measured_or_one_run_per_row_if_unknown() {
        let us = |micros: &[u64]| micros.iter().map(|us| Duration::from_micros(*us)).collect::<Vec<_>>();
        let costs = Costs(
            [
                ("big".into(), cost(&us(&[90, 170]), us(&[90])[0])),
                ("small".into(), cost(&us(&[9]), us(&[90])[0])),
            ]
            .into(),
        );
        let percent = |model, rows| (costs.of(model, rows) * 100.0).round();
        assert_eq!(["big", "small", "other"].map(|model| percent(model, 1)), [100.0, 10.0, 100.0]);
        assert_eq!([1, 2, 4].map(|rows| percent("small", rows)), [10.0, 20.0, 40.0]);
    }
}
