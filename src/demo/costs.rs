//! What runs of each model take, as shares of a query's: as they were measured on this machine when the models were loaded.
//!
//! The demonstration stretches time, and stretches it for all models alike: a stand-in or a parity model takes the share of
//! an emulated run that it really takes of a real one, and that share is what its work counts.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use parm_backend::Embedded;
use parm_dispatch::Cost;
use parm_protocol::ModelRef;
use parm_protocol::client::Client as _;

/// Costs by model.
#[derive(Clone, Debug, Default)]
pub struct Costs(BTreeMap<String, Cost>);

impl Costs {
    /// What an instance measured of its models, of which the first is the deployed one.
    pub async fn measured(instance: &Embedded, models: &[String]) -> anyhow::Result<Self> {
        let mut times = Vec::new();
        for model in models {
            let config = instance.model_config(&ModelRef::latest(model)).await?;
            let measured = config.run_times();
            ensure!(!measured.is_empty(), "'{model}' does not run on blank inputs: give --model another");
            times.push((model.clone(), measured));
        }
        let query = *times.first().and_then(|(_, times)| times.first()).context("no model was loaded")?;
        Ok(Self(times.into_iter().map(|(model, times)| (model, cost(&times, query))).collect()))
    }

    /// What a run of so many rows takes.
    pub fn of(&self, model: &str, rows: usize) -> f64 {
        self.0.get(model).map_or(rows as f64, |cost| cost.of(rows))
    }

    /// Every model and what one row costs.
    pub fn rows(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(model, cost)| (model.as_str(), cost.of(1)))
    }
}

/// Runs of 1, 2, 4 and 8 rows; those that there was no time to measure take twice as long as half of them.
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
    fn a_model_costs_what_was_measured_and_an_unknown_one_a_run_for_each_row() {
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
