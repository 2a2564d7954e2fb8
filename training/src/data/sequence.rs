//! Sequences of different lengths, brought to one: networks want rows of equal shape.

use std::path::Path;

use super::Error;
use crate::Array;

/// Cuts `rows`, `[all, features]`, into sequences and stretches each to `frames` rows between its first and its last:
/// `[sequences, 1, frames, features]`, an image of one channel.
pub(super) fn stretched(
    path: &Path,
    rows: &Array<f64>,
    lengths: &[f64],
    frames: usize,
) -> Result<Array<f64>, Error> {
    let format =
        |detail: String| Error::Format { path: path.into(), expected: "an archive of sequences", detail };
    let [all, features] = *rows.shape() else {
        return Err(Error::Dimensions { path: path.into(), expected: 2, actual: rows.shape().into() });
    };
    if lengths.iter().any(|length| !(*length >= 1.0 && length.fract() == 0.0)) {
        return Err(format("a length is not a whole number above 0".into()));
    }
    let total: f64 = lengths.iter().sum();
    if total != all as f64 {
        return Err(format(format!("its lengths sum up to {total}, it has {all} rows")));
    }
    let mut data = Vec::with_capacity(lengths.len() * frames * features);
    let mut start = 0;
    for &length in lengths {
        let length = length as usize;
        stretch(&rows.data()[start * features..][..length * features], features, frames, &mut data);
        start += length;
    }
    Ok(Array::new(vec![lengths.len(), 1, frames, features], data).expect("each adds its frames"))
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
