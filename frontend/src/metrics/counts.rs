//! What the dispatcher counts, as tables: a counter is one line.
//!
//! A line says what a count is called and how it is read. Counts are copied when the page is read, and a series is there
//! from its first copy on.

use parm_dispatch::Counters;
use prometheus::{IntCounterVec, Opts, Registry};

use super::series::Series;
use super::{MODEL, register};

/// What is read of the dispatcher's counts.
type Read = fn(&Counters) -> u64;

/// A metric that shows counts of the dispatcher.
pub(super) struct Count {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// The label that tells its counts apart, beside the model's; empty where there is but one.
    pub(super) label: &'static str,
    /// That label's value, and what is counted.
    pub(super) counts: &'static [(&'static str, Read)],
}

/// The metrics of a table.
pub(super) struct Counts(Vec<(IntCounterVec, &'static Count)>);

impl Counts {
    pub(super) fn new(registry: &Registry, table: &'static [Count]) -> Self {
        let metric = |count: &'static Count| {
            let labels: Vec<&str> = MODEL.iter().copied().chain(given(count.label)).collect();
            let metric = IntCounterVec::new(Opts::new(count.name, count.help), &labels);
            (register(registry, metric), count)
        };
        Self(table.iter().map(metric).collect())
    }

    /// Handles of one model.
    pub(super) fn of(&self, model: [&str; 2]) -> Counted {
        let series = self.0.iter().flat_map(|(metric, count)| {
            count.counts.iter().map(move |(value, read)| {
                let labels: Vec<&str> = model.into_iter().chain(given(value)).collect();
                (Series::new(metric, &labels), *read)
            })
        });
        Counted(series.collect())
    }
}

/// A table's counts of one model.
pub(super) struct Counted(Vec<(Series<IntCounterVec>, Read)>);

impl Counted {
    /// Copies what was counted; what is zero only where that is wanted.
    pub(super) fn copy(&self, counters: &Counters, zeros: bool) {
        for (series, read) in &self.0 {
            let value = read(counters);
            if zeros || value > 0 {
                series.inc_by(value.saturating_sub(series.count()));
            }
        }
    }
}

fn given(label: &str) -> Option<&str> {
    (!label.is_empty()).then_some(label)
}
