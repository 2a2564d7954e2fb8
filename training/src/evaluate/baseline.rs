//! Baselines that a reconstruction must beat: a constant answer and a backup model.

use super::{Metric, Truth};
use crate::groups::row_len;
use crate::{Array, Error};

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
