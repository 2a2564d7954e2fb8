//! Normalisation of raw values by the preprocessing of a bundle.

use parm_parity_models::bundle::Preprocessing;

use super::Unusable;
use crate::Array;

/// `(value * scale - mean) / deviation`, channel by channel of `rows`, `[rows, channels, ..]`.
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
