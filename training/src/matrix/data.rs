//! The data sets of a matrix, and how answers on them are judged.

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
    /// How answers are judged: `accuracy`, `iou` or `agreement`. Default `accuracy`.
    #[serde(default)]
    pub measure: Measure,
    /// What to say beside a figure, such as that the data are lossy. Default: nothing.
    #[serde(default)]
    pub note: String,
}

/// How answers are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// By the label.
    #[default]
    Accuracy,
    /// By what a box shares with the true one.
    Iou,
    /// By the deployed model's own answer; labels, if there are some, are not looked at.
    Agreement,
}

impl Measure {
    pub(super) fn metric(self) -> Metric {
        match self {
            Measure::Accuracy | Measure::Agreement => Metric::TOP_1,
            Measure::Iou => Metric::Iou,
        }
    }

    /// What tables call it.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Measure::Accuracy => "accuracy in percent",
            Measure::Iou => "mean intersection over union with the true box in percent",
            Measure::Agreement => {
                "agreement with the deployed model's own answers in percent, for there are no labels"
            }
        }
    }

    /// What the same answer to everybody is here.
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

    /// Refuses what is no source, before anything runs.
    pub(super) fn check(&self) -> Result<(), Error> {
        for source in [&self.train, &self.test] {
            source.parse::<Source>()?;
        }
        Ok(())
    }

    /// What results depend on besides the set's name: which rows are taken and how they are read and judged. Where the
    /// files are is nothing of it. `None` where nothing is set.
    pub(super) fn settings(&self) -> Option<(String, String, Measure)> {
        let of = |source: &str| source.split_once('?').map_or(String::new(), |(_, settings)| settings.into());
        let settings = (of(&self.train), of(&self.test), self.measure);
        (settings != Default::default()).then_some(settings)
    }
}
