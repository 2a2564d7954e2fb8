//! Targets: the gap A_a - A_d in points that the best recipe of a table must not exceed, for any base model.

/// The targets by k, for a data set.
pub(super) fn of(data: &str) -> &'static [(usize, f64)] {
    match data {
        "mnist" => &[(2, 0.1), (3, 0.3), (4, 0.5)],
        "fashion-mnist" => &[(2, 0.8), (3, 1.5), (4, 2.5)],
        "cifar-10" => &[(2, 2.0), (3, 4.0), (4, 6.0)],
        _ => &[],
    }
}

/// The loss of the learned code's paper with two queries and ResNet-18, in points; the limit here is [`MORE`] above
/// it.
pub(super) fn learned(data: &str) -> Option<f64> {
    match data {
        "mnist" => Some(0.0),
        "fashion-mnist" => Some(0.7),
        _ => None,
    }
}

/// Points.
pub(super) const MORE: f64 = 1.5;
