//! Whoever says what is true of a row: the deployed model.

use crate::network::Network;
use crate::{Array, Error};

/// A model that is asked, however it is run. A graph that can be interpreted here is one; an engine that runs what
/// cannot be is another.
pub trait Teacher {
    /// What it says of each row, flat: `[rows, values]`. Of several outputs the first, or all of them side by side where all are
    /// taught.
    fn predict(&self, rows: &Array<f32>) -> Result<Array<f32>, Error>;
}

impl Teacher for Network {
    fn predict(&self, rows: &Array<f32>) -> Result<Array<f32>, Error> {
        predictions(self, rows)
    }
}

/// Rows that a network is given at a time where no gradient is wanted.
const CHUNK: usize = 250;

/// What a network says of every row, flat: `[rows, values]`.
pub(crate) fn predictions(network: &Network, rows: &Array<f32>) -> Result<Array<f32>, Error> {
    let count = rows.shape()[0];
    let mut all = Vec::new();
    for start in (0..count).step_by(CHUNK) {
        let chunk = rows.range(start, (start + CHUNK).min(count));
        all.extend(network.say(chunk)?.download().into_data());
    }
    let values = all.len() / count.max(1);
    Array::new(vec![count, values], all).ok_or(Error::OutputKind)
}
