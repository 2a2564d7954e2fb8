//! Metrics: how an answer is scored.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::Error;

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

    pub(super) fn name(self) -> &'static str {
        match self {
            Metric::Top(_) => "top-n",
            Metric::Iou => "iou",
            Metric::AbsoluteError => "absolute-error",
        }
    }
}

/// Whether `class` is among the `n` highest of `scores`. Among equal scores, the earlier ranks higher; a NaN makes the
/// answer wrong.
pub(super) fn among_highest(scores: &[f32], class: usize, n: usize) -> bool {
    let own = scores[class];
    let higher = |(at, &score): (usize, &f32)| score > own || (score == own && at < class);
    scores.iter().all(|score| !score.is_nan())
        && scores.iter().enumerate().filter(|&(at, score)| higher((at, score))).count() < n
}

/// The class of the highest score.
pub(super) fn highest(scores: &[f32]) -> usize {
    let mut best = 0;
    for (at, score) in scores.iter().enumerate() {
        if *score > scores[best] || scores[best].is_nan() {
            best = at;
        }
    }
    best
}

/// Shared area over joint area; 0 for invalid boxes.
pub(super) fn intersection_over_union(a: &[f32], b: &[f32]) -> f64 {
    let (&[ax, ay, az, aw], &[bx, by, bz, bw]) = (a, b) else { return 0.0 };
    let area = |x: f32, y: f32, z: f32, w: f32| f64::from((z - x).max(0.0)) * f64::from((w - y).max(0.0));
    let both = area(ax.max(bx), ay.max(by), az.min(bz), aw.min(bw));
    let joint = area(ax, ay, az, aw) + area(bx, by, bz, bw) - both;
    if joint > 0.0 { both / joint } else { 0.0 }
}

/// Mean absolute difference.
pub(super) fn absolute_error(a: &[f32], b: &[f32]) -> f64 {
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
