//! Normalisation: computes it for training, and stores it in the bundle for clients.

use parm_parity_models::bundle::Preprocessing;

use super::Unusable;
use crate::Array;

/// The mean and deviation of each channel of `rows`, `[rows, channels, ..]`. A constant channel is only shifted.
pub fn fit(rows: &Array<f32>) -> Preprocessing {
    let channels = rows.shape().get(1).copied().unwrap_or(1);
    let mut moments = vec![(0.0_f64, 0.0_f64); channels];
    each(rows, channels, |channel, values| {
        for &value in values {
            moments[channel].0 += f64::from(value);
            moments[channel].1 += f64::from(value).powi(2);
        }
    });
    let count = (rows.data().len() / channels.max(1)).max(1) as f64;
    let mean = |&(sum, _): &(f64, f64)| (sum / count) as f32;
    let deviation = |&(sum, squares): &(f64, f64)| {
        let deviation = (squares / count - (sum / count).powi(2)).max(0.0).sqrt() as f32;
        if deviation > 1e-6 { deviation } else { 1.0 }
    };
    Preprocessing {
        scale: 1.0,
        mean: moments.iter().map(mean).collect(),
        deviation: moments.iter().map(deviation).collect(),
    }
}

/// `(value * scale - mean) / deviation`, channel by channel.
pub fn normalise(rows: &mut Array<f32>, with: &Preprocessing) -> Result<(), Unusable> {
    let channels = rows.shape().get(1).copied().unwrap_or(1);
    let numbers = with.mean.iter().chain(&with.deviation).chain([&with.scale]);
    if !numbers.copied().all(f32::is_finite) || with.deviation.contains(&0.0) {
        return Err(Unusable::Preprocessing);
    }
    for values in [&with.mean, &with.deviation] {
        if values.len() != 1 && values.len() != channels {
            return Err(Unusable::Channels { row: rows.shape()[1..].to_vec(), channels: values.len() });
        }
    }
    let of = |values: &[f32], channel: usize| if values.len() == 1 { values[0] } else { values[channel] };
    let plane: usize = rows.shape().iter().skip(2).product();
    for (at, values) in rows.data_mut().chunks_mut(plane.max(1)).enumerate() {
        let (mean, deviation) = (of(&with.mean, at % channels), of(&with.deviation, at % channels));
        values.iter_mut().for_each(|value| *value = (*value * with.scale - mean) / deviation);
    }
    Ok(())
}

fn each(rows: &Array<f32>, channels: usize, mut visit: impl FnMut(usize, &[f32])) {
    let plane: usize = rows.shape().iter().skip(2).product();
    for (at, values) in rows.data().chunks(plane.max(1)).enumerate() {
        visit(at % channels, values);
    }
}
