//! Metrics of the dispatcher's counters, defined as tables with one line per counter.
//!
//! A line has the name of a counter and how to read it. Counters are copied when the page is read, and a series exists
//! from its first copy on.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus::{IntCounterVec, Opts, Registry};

use super::series::Series;
use super::{MODEL, register};
use crate::serve::reading::Counters;

/// Reads a counter of the dispatcher.
type Read = fn(&Counters) -> u64;

/// A metric that shows counters of the dispatcher.
pub(super) struct Count {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// Name of the label that distinguishes the counters, next to the model's; empty for a single counter.
    pub(super) label: &'static str,
    /// Values of that label, with their counters.
    pub(super) counts: &'static [(&'static str, Read)],
}

/// Metrics of a table.
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
                One { series: Series::new(metric, &labels), read: *read, copied: AtomicU64::new(0) }
            })
        });
        Counted(series.collect())
    }
}

/// A table's counters of one model.
pub(super) struct Counted(Vec<One>);

/// A counter of one model.
struct One {
    series: Series<IntCounterVec>,
    read: Read,
    /// The value of the dispatcher's counter at the last copy. The series may stand higher: a model that is replaced
    /// continues it, while the dispatcher counts from zero.
    copied: AtomicU64,
}

impl Counted {
    /// Copies the counters; zeros only if `zeros` is set.
    pub(super) fn copy(&self, counters: &Counters, zeros: bool) {
        for One { series, read, copied } in &self.0 {
            let value = read(counters);
            if zeros || value > 0 {
                let before = copied.fetch_max(value, Ordering::Relaxed);
                series.inc_by(value.saturating_sub(before));
            }
        }
    }

    /// Removes the series from the page.
    pub(super) fn forget(&self) {
        self.0.iter().for_each(|one| one.series.forget());
    }
}

fn given(label: &str) -> Option<&str> {
    (!label.is_empty()).then_some(label)
}
