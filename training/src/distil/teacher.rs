//! Teachers: models whose answers count as the truth, usually the deployed model.

use crate::network::Network;
use crate::{Array, Error};

/// A model that answers rows. A graph that this crate can interpret is one; an engine can run the others.
pub trait Teacher {
    /// Its answer to each row, flat: `[rows, values]`. With several outputs, the first, or all of them side by side if
    /// all are taught.
    fn predict(&self, rows: &Array<f32>) -> Result<Array<f32>, Error>;
}

impl Teacher for Network {
    fn predict(&self, rows: &Array<f32>) -> Result<Array<f32>, Error> {
        predictions(self, rows)
    }
}

/// A network's answer to every row, flat: `[rows, values]`.
pub(crate) fn predictions(network: &Network, rows: &Array<f32>) -> Result<Array<f32>, Error> {
    let count = rows.shape()[0];
    let mut all = Vec::new();
    let together = network.together();
    for start in (0..count).step_by(together) {
        let chunk = rows.range(start, (start + together).min(count));
        all.extend(network.say(chunk)?.download().into_data());
    }
    let values = all.len() / count.max(1);
    Array::new(vec![count, values], all).ok_or(Error::OutputKind)
}
