//! One series of a metric, made when it is first used.
//!
//! A model that nobody asks for, and a policy that is not in force, would otherwise fill the page with zeros: a model has
//! half a hundred series, and each histogram among them thirty lines. The handle is kept, so the request path touches
//! atomics only, as with one that is made at once.

use std::ops::Deref;
use std::sync::OnceLock;

use prometheus::IntCounterVec;
use prometheus::core::{MetricVec, MetricVecBuilder};

/// A metric with labels.
pub(crate) trait Family {
    /// With its labels' values.
    type Metric;

    /// The series with these labels.
    fn series(&self, labels: &[String]) -> Self::Metric;
}

/// A series.
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

impl<F: Family> Series<F> {
    /// Whether it was ever used.
    pub(crate) fn is_used(&self) -> bool {
        self.made.get().is_some()
    }
}

impl Series<IntCounterVec> {
    /// What it counted; reading makes no series.
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
