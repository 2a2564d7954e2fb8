//! The true answers.

use super::Metric;
use super::metric::{absolute_error, among_highest, highest, intersection_over_union};
use crate::data::Samples;
use crate::groups::row_len;
use crate::{Array, Error};

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
    pub(super) fn rows(&self) -> usize {
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
