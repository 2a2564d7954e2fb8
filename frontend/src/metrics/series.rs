//! Series of a metric that is created on first use.
//!
//! A model without queries, or a policy that is not in effect, would otherwise fill the page with zeros: a model has
//! about fifty series, and each histogram has thirty lines. The handle is cached, so the request path uses only
//! atomics.

use std::ops::Deref;
use std::sync::OnceLock;

use prometheus::IntCounterVec;
use prometheus::core::{MetricVec, MetricVecBuilder};

/// A metric with labels.
pub(crate) trait Family {
    /// Type of a single series.
    type Metric;

    fn series(&self, labels: &[String]) -> Self::Metric;
}

pub(crate) struct Series<F: Family> {
    family: F,
    labels: Vec<String>,
    made: OnceLock<F::Metric>,
}

impl<B: MetricVecBuilder> Family for MetricVec<B> {
    type Metric = B::M;

    fn series(&self, labels: &[String]) -> B::M {
        self.with_label_values(labels)
    }
}

impl<F: Family + Clone> Series<F> {
    pub(super) fn new(family: &F, labels: &[&str]) -> Self {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Self { family: family.clone(), labels, made: OnceLock::new() }
    }
}

impl<B: MetricVecBuilder> Series<MetricVec<B>> {
    /// Removes the series from the page.
    pub(super) fn forget(&self) {
        let labels: Vec<&str> = self.labels.iter().map(String::as_str).collect();
        // An error means that it was never used.
        let _ = self.family.remove_label_values(&labels);
    }
}

impl Series<IntCounterVec> {
    /// Its value; reading does not create the series.
    pub(crate) fn count(&self) -> u64 {
        self.made.get().map_or(0, |counter| counter.get())
    }
}

impl<F: Family> Deref for Series<F> {
    type Target = F::Metric;

    fn deref(&self) -> &F::Metric {
        self.made.get_or_init(|| self.family.series(&self.labels))
    }
}
