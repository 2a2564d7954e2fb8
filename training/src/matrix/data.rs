//! The data sets of a matrix, with the measure for answers on them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::data::{Limit, Samples, Source};
use crate::evaluate::Metric;

/// A data set: sources of rows, where `{}` stands for the folder of data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Rows to learn from, as `KIND:PATH,PATH?setting=value`.
    pub train: String,
    /// Rows that no training sees.
    pub test: String,
    /// The measure: `accuracy`, `iou` or `agreement`. Default `accuracy`.
    #[serde(default)]
    pub measure: Measure,
    /// A remark for the figures, for example that the data are lossy. Default: none.
    #[serde(default)]
    pub note: String,
}

/// The measure for answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Accuracy by the labels.
    #[default]
    Accuracy,
    /// Intersection over union with the true box.
    Iou,
    /// Agreement with the deployed model's answer; labels are ignored.
    Agreement,
}

impl Measure {
    pub(super) fn metric(self) -> Metric {
        match self {
            Measure::Accuracy | Measure::Agreement => Metric::TOP_1,
            Measure::Iou => Metric::Iou,
        }
    }

    /// Its name in tables.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Measure::Accuracy => "accuracy in percent",
            Measure::Iou => "mean intersection over union with the true box in percent",
            Measure::Agreement => {
                "agreement with the deployed model's own answers in percent, because the rows have no labels"
            }
        }
    }

    /// The name of the constant answer.
    pub(super) fn constant(self) -> &'static str {
        match self {
            Measure::Accuracy => "the most frequent class",
            Measure::Iou => "the mean box",
            Measure::Agreement => "the most frequent answer",
        }
    }
}

impl Data {
    /// Rows to learn from and rows for the measurement.
    pub fn read(&self, root: &Path) -> Result<(Samples, Samples), Error> {
        let read = |source: &str| -> Result<Samples, Error> {
            let source: Source = source.replace("{}", &root.to_string_lossy()).parse()?;
            let samples = source.read(Limit::default())?;
            let labels = samples.labels.filter(|_| self.measure != Measure::Agreement);
            Ok(Samples { labels, ..samples })
        };
        Ok((read(&self.train)?, read(&self.test)?))
    }

    /// Rejects an invalid source before anything runs.
    pub(super) fn check(&self) -> Result<(), Error> {
        for source in [&self.train, &self.test] {
            source.parse::<Source>()?;
        }
        Ok(())
    }

    /// The name of its rows in result files. Sets of several matrix files may share a name and differ in their settings.
    pub(super) fn input(&self, name: &str) -> String {
        match self.settings() {
            Some((train, test, _)) if !(train.is_empty() && test.is_empty()) => {
                format!("data {name} ({train}; {test})")
            }
            _ => format!("data {name}"),
        }
    }

    /// The settings that results depend on, without the set's name: the selected rows, how they are read, and the
    /// measure. The location of the files does not count. `None` if all are defaults.
    pub(super) fn settings(&self) -> Option<(String, String, Measure)> {
        let of = |source: &str| source.split_once('?').map_or(String::new(), |(_, settings)| settings.into());
        let settings = (of(&self.train), of(&self.test), self.measure);
        (settings != Default::default()).then_some(settings)
    }
}
