//! Resamples sequences to one length: networks need rows of equal shape.

use std::path::Path;

use super::Unusable;
use super::file::Limit;
use crate::Array;

/// Splits `rows`, `[all, features]`, into sequences and resamples each to `frames` rows between its first and its
/// last: `[sequences, 1, frames, features]`, an image of one channel.
pub(super) fn stretched(
    path: &Path,
    rows: &Array<f64>,
    lengths: &[f64],
    frames: usize,
    limit: Limit,
) -> Result<Array<f64>, Unusable> {
    let format =
        |detail: String| Unusable::Format { path: path.into(), expected: "an archive of sequences", detail };
    let [all, features] = *rows.shape() else {
        return Err(Unusable::Dimensions { path: path.into(), expected: 2, actual: rows.shape().into() });
    };
    if lengths.iter().any(|length| !(*length >= 1.0 && length.fract() == 0.0)) {
        return Err(format("a length is not a whole number above 0".into()));
    }
    let total: f64 = lengths.iter().sum();
    if total != all as f64 {
        return Err(format(format!("its lengths sum to {total}, it has {all} rows")));
    }
    let count = lengths.len().saturating_mul(frames).saturating_mul(features);
    if (count as u64).saturating_mul(4) > limit.0 {
        return Err(Unusable::TooLarge { path: path.into(), limit: limit.0 });
    }
    let mut data = Vec::with_capacity(count);
    let mut start = 0;
    for &length in lengths {
        let length = length as usize;
        stretch(&rows.data()[start * features..][..length * features], features, frames, &mut data);
        start += length;
    }
    Ok(Array::new(vec![lengths.len(), 1, frames, features], data).expect("each adds its frames"))
}

/// Scales each feature of `rows`, `[all, features]`, to mean 0 and deviation 1; a constant feature is only shifted.
/// Without that, features of a small scale would have no effect in a convolution.
pub(super) fn standardise(rows: &mut Array<f64>) {
    let [all, features] = *rows.shape() else { return };
    for feature in 0..features {
        let column = rows.data().iter().skip(feature).step_by(features);
        let (sum, squares) = column.fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        let mean = sum / all.max(1) as f64;
        let deviation = (squares / all.max(1) as f64 - mean * mean).max(0.0).sqrt();
        let scale = if deviation > 1e-6 { deviation.recip() } else { 1.0 };
        rows.data_mut().iter_mut().skip(feature).step_by(features).for_each(|x| *x = (*x - mean) * scale);
    }
}

/// Linear interpolation between neighbouring rows.
fn stretch(sequence: &[f64], features: usize, frames: usize, out: &mut Vec<f64>) {
    let last = sequence.len() / features - 1;
    for frame in 0..frames {
        let place = last as f64 * frame as f64 / (frames - 1).max(1) as f64;
        let (before, share) = (place.floor() as usize, place.fract());
        let after = (before + 1).min(last);
        for feature in 0..features {
            let at = |row: usize| sequence[row * features + feature];
            out.push(at(before) + share * (at(after) - at(before)));
        }
    }
}
