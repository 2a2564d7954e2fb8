//! Metrics: how an answer is scored against the true one, and the constant answer that a reconstruction must beat.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::data::Samples;
use crate::groups::row_len;
use crate::{Array, Error};

/// The score of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Whether the true class is among this many of the highest scores.
    Top(NonZeroUsize),
    /// Intersection over union of two boxes, each `x_min, y_min, x_max, y_max`.
    Iou,
    /// The mean absolute difference; lower is better.
    AbsoluteError,
}

impl Metric {
    /// Whether the highest score is the true class's.
    pub const TOP_1: Metric = Metric::Top(NonZeroUsize::MIN);

    /// Whether higher is better.
    pub fn ascends(self) -> bool {
        self != Metric::AbsoluteError
    }

    fn name(self) -> &'static str {
        match self {
            Metric::Top(_) => "top-n",
            Metric::Iou => "iou",
            Metric::AbsoluteError => "absolute-error",
        }
    }
}

/// Whether `class` is among the `n` highest of `scores`. Among equal scores, the earlier ranks higher; a NaN makes the
/// answer wrong.
fn among_highest(scores: &[f32], class: usize, n: usize) -> bool {
    let own = scores[class];
    let higher = |(at, &score): (usize, &f32)| score > own || (score == own && at < class);
    scores.iter().all(|score| !score.is_nan())
        && scores.iter().enumerate().filter(|&(at, score)| higher((at, score))).count() < n
}

/// The class of the highest score.
fn highest(scores: &[f32]) -> usize {
    let mut best = 0;
    for (at, score) in scores.iter().enumerate() {
        if *score > scores[best] || scores[best].is_nan() {
            best = at;
        }
    }
    best
}

/// Shared area over joint area; 0 for invalid boxes.
fn intersection_over_union(a: &[f32], b: &[f32]) -> f64 {
    let (&[ax, ay, az, aw], &[bx, by, bz, bw]) = (a, b) else { return 0.0 };
    let area = |x: f32, y: f32, z: f32, w: f32| f64::from((z - x).max(0.0)) * f64::from((w - y).max(0.0));
    let both = area(ax.max(bx), ay.max(by), az.min(bz), aw.min(bw));
    let joint = area(ax, ay, az, aw) + area(bx, by, bz, bw) - both;
    if joint > 0.0 { both / joint } else { 0.0 }
}

/// Mean absolute difference.
fn absolute_error(a: &[f32], b: &[f32]) -> f64 {
    let sum: f64 = a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).sum();
    sum / a.len().max(1) as f64
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Metric::Top(n) => write!(f, "top-{n}"),
            Metric::Iou => f.write_str("mean IoU"),
            Metric::AbsoluteError => f.write_str("mean absolute error"),
        }
    }
}

impl FromStr for Metric {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || Error::NoMetric { text: text.into() };
        match (text, text.strip_prefix("top-")) {
            (_, Some(n)) => n.parse().map(Metric::Top).map_err(|_| unknown()),
            ("iou", _) => Ok(Metric::Iou),
            ("absolute-error", _) => Ok(Metric::AbsoluteError),
            _ => Err(unknown()),
        }
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The true answer to every row.
#[derive(Clone, Debug, PartialEq)]
pub enum Truth {
    /// Classes.
    Classes(Vec<usize>),
    /// Numbers, such as a box, `[rows, ..]`.
    Values(Array<f32>),
}

impl Truth {
    /// For data without labels: takes the deployed model's answers as right. Then A_a is perfect and A_d is
    /// agreement.
    pub fn deployed(outputs: &Array<f32>, metric: Metric) -> Self {
        match metric {
            Metric::Top(_) => {
                Truth::Classes(outputs.data().chunks(row_len(outputs).max(1)).map(highest).collect())
            }
            Metric::Iou | Metric::AbsoluteError => Truth::Values(outputs.clone()),
        }
    }

    /// The labels of a classifier's rows or the numbers of others, if they are known, or else the deployed model's answers.
    pub(crate) fn of(samples: &Samples, is_classifier: bool, outputs: &Array<f32>, metric: Metric) -> Self {
        match (&samples.labels, &samples.values) {
            (Some(labels), _) if is_classifier => Truth::Classes(labels.clone()),
            (_, Some(values)) if !is_classifier => Truth::Values(values.clone()),
            _ => Truth::deployed(outputs, metric),
        }
    }

    /// The number of rows.
    fn rows(&self) -> usize {
        match self {
            Truth::Classes(classes) => classes.len(),
            Truth::Values(values) => values.shape().first().copied().unwrap_or(0),
        }
    }

    /// Checks that answers with the shape of `outputs` can be judged.
    pub(super) fn check(&self, metric: Metric, outputs: &Array<f32>) -> Result<(), Error> {
        let (rows, width) = (outputs.shape().first().copied().unwrap_or(0), row_len(outputs));
        if self.rows() != rows {
            return Err(Error::Rows { what: "labels", expected: rows, actual: self.rows() });
        }
        match (self, metric) {
            (Truth::Classes(classes), Metric::Top(_)) => {
                match classes.iter().enumerate().find(|(_, label)| **label >= width) {
                    Some((row, &label)) => Err(Error::Label { row, label, classes: width }),
                    None => Ok(()),
                }
            }
            (Truth::Values(values), Metric::Iou | Metric::AbsoluteError) => {
                let expected = if metric == Metric::Iou { 4 } else { width };
                match [("outputs", width), ("labels", row_len(values))]
                    .into_iter()
                    .find(|(_, is)| *is != expected)
                {
                    Some((what, actual)) => Err(Error::Width { what, expected, actual }),
                    None => Ok(()),
                }
            }
            (Truth::Classes(_), _) => Err(Error::Metric { metric: metric.name(), truth: "classes" }),
            (Truth::Values(_), _) => Err(Error::Metric { metric: metric.name(), truth: "values" }),
        }
    }

    /// The score of an answer to `row`. [`check`](Self::check) must have passed.
    pub(super) fn score(&self, metric: Metric, row: usize, answer: &[f32]) -> f64 {
        match (self, metric) {
            (Truth::Classes(classes), Metric::Top(n)) => {
                f64::from(u8::from(among_highest(answer, classes[row], n.get())))
            }
            (Truth::Classes(_), _) => 0.0,
            (Truth::Values(values), Metric::AbsoluteError) => absolute_error(answer, value(values, row)),
            (Truth::Values(values), _) => intersection_over_union(answer, value(values, row)),
        }
    }
}

fn value(values: &Array<f32>, row: usize) -> &[f32] {
    let width = row_len(values);
    &values.data()[row * width..][..width]
}

/// The mean score of a model's outputs.
pub(crate) fn score(metric: Metric, outputs: &Array<f32>, truth: &Truth) -> Result<f64, Error> {
    truth.check(metric, outputs)?;
    let rows = outputs.data().chunks(row_len(outputs).max(1)).enumerate();
    let sum: f64 = rows.map(|(row, answer)| truth.score(metric, row, answer)).sum();
    Ok(sum / truth.rows().max(1) as f64)
}

/// The score of the best constant answer: the most frequent classes, or the middle of all values (their median for
/// absolute errors, otherwise their mean). It uses the true answers, so no constant that a model could know does
/// better on classes or absolute errors.
pub fn constant_answer(metric: Metric, truth: &Truth) -> f64 {
    match (truth, metric) {
        (Truth::Classes(classes), Metric::Top(n)) => {
            let mut counts = vec![0_usize; classes.iter().max().map_or(0, |class| class + 1)];
            classes.iter().for_each(|&class| counts[class] += 1);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            counts.iter().take(n.get()).sum::<usize>() as f64 / classes.len().max(1) as f64
        }
        (Truth::Classes(_), _) => 0.0,
        (Truth::Values(values), _) => {
            let middle = middle(metric, values);
            let rows = truth.rows();
            (0..rows).map(|row| truth.score(metric, row, &middle)).sum::<f64>() / rows.max(1) as f64
        }
    }
}

fn middle(metric: Metric, values: &Array<f32>) -> Vec<f32> {
    let width = row_len(values);
    let column = |at: usize| values.data().iter().skip(at).step_by(width.max(1)).copied();
    (0..width)
        .map(|at| {
            let mut column: Vec<f32> = column(at).collect();
            if metric == Metric::AbsoluteError {
                column.sort_unstable_by(f32::total_cmp);
                column[column.len() / 2]
            } else {
                let sum: f64 = column.iter().map(|value| f64::from(*value)).sum();
                (sum / column.len().max(1) as f64) as f32
            }
        })
        .collect()
}
