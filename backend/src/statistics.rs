//! The statistics of one model for the protocol's statistics endpoint.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use parm_protocol::{BatchStatistics, DurationStatistics, ModelStatistics};

use crate::metrics::{ModelMetrics, micros};

/// The parts of a batch's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Phases {
    pub(crate) input: Duration,
    pub(crate) infer: Duration,
    pub(crate) output: Duration,
}

/// Statistics and metrics of one model, updated together.
#[derive(Debug)]
pub(crate) struct Statistics {
    metrics: ModelMetrics,
    totals: Mutex<Totals>,
}

#[derive(Debug, Default)]
struct Totals {
    total: ModelStatistics,
    batches: BTreeMap<usize, BatchStatistics>,
}

impl Statistics {
    pub(crate) fn new(metrics: ModelMetrics) -> Self {
        Self { metrics, totals: Mutex::default() }
    }

    pub(crate) fn metrics(&self) -> &ModelMetrics {
        &self.metrics
    }

    /// Counts a batch.
    pub(crate) fn executed(&self, rows: usize, phases: Phases) {
        self.metrics.rows.inc_by(rows as u64);
        self.metrics.executions.inc();
        self.metrics.service_time.observe(phases.infer.as_secs_f64());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut totals = self.totals.lock();
        totals.total.inference_count += rows as u64;
        totals.total.execution_count += 1;
        totals.total.last_inference_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let batch = totals.batches.entry(rows).or_default();
        batch.batch_size = rows as u64;
        add(&mut batch.compute_input, phases.input);
        add(&mut batch.compute_infer, phases.infer);
        add(&mut batch.compute_output, phases.output);
    }

    /// Counts an answered request of that batch: it took `whole`, of which it was queued for `queued`.
    pub(crate) fn answered(&self, whole: Duration, queued: Duration, phases: Phases) {
        self.metrics.success.inc();
        self.metrics.request_us.inc_by(micros(whole));
        self.metrics.queue_us.inc_by(micros(queued));
        self.metrics.input_us.inc_by(micros(phases.input));
        self.metrics.infer_us.inc_by(micros(phases.infer));
        self.metrics.output_us.inc_by(micros(phases.output));
        let total = &mut self.totals.lock().total.inference_stats;
        add(&mut total.success, whole);
        add(&mut total.queue, queued);
        add(&mut total.compute_input, phases.input);
        add(&mut total.compute_infer, phases.infer);
        add(&mut total.compute_output, phases.output);
    }

    /// Counts a request that failed after `whole`.
    pub(crate) fn failed(&self, whole: Duration) {
        add(&mut self.totals.lock().total.inference_stats.fail, whole);
    }

    pub(crate) fn report(&self, name: &str, version: &str) -> ModelStatistics {
        let totals = self.totals.lock();
        ModelStatistics {
            name: name.into(),
            version: version.into(),
            batch_stats: totals.batches.values().copied().collect(),
            ..totals.total.clone()
        }
    }
}

fn add(statistics: &mut DurationStatistics, duration: Duration) {
    statistics.count += 1;
    statistics.ns += u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metrics;

    #[test]
    fn statistics_count_requests_and_batch_sizes() {
        let registry = prometheus::Registry::new();
        let statistics = Statistics::new(Metrics::worker(&registry).unwrap().model("m", "1"));
        let ms = Duration::from_millis;
        let phases = Phases { input: ms(1), infer: ms(2), output: ms(3) };
        statistics.executed(2, phases);
        statistics.answered(ms(10), ms(4), phases);
        statistics.answered(ms(12), ms(6), phases);
        statistics.executed(1, phases);
        statistics.failed(ms(5));
        let report = statistics.report("m", "1");
        assert_eq!((report.inference_count, report.execution_count), (3, 2));
        assert_eq!(report.inference_stats.success, DurationStatistics { count: 2, ns: 22_000_000 });
        assert_eq!(report.inference_stats.queue, DurationStatistics { count: 2, ns: 10_000_000 });
        assert_eq!(report.inference_stats.fail, DurationStatistics { count: 1, ns: 5_000_000 });
        assert_eq!(report.batch_stats.iter().map(|batch| batch.batch_size).collect::<Vec<_>>(), [1, 2]);
    }
}
