//! Thins a network: fewer features in every layer from its input to its predictions.
//!
//! With half of the features a layer needs a quarter of the multiplications: a stand-in without a separate design.
//!
//! The remaining features of every value after a first layer are tracked, and each of its readers is cut to them: the
//! weights of layers here, other operators in [`super::follow`]. Layers of equal width keep equally many features,
//! always the first ones, so that values that are added keep the same features. An operator that is not known to keep
//! features in their places is an error, since a guess could break the network silently.

use std::collections::BTreeMap;

use super::super::topology::{reads, writes};
use super::super::{Defect, Tensor};
use super::draft::{Draft, is_one_of};
use super::head::Head;
use super::linear::{Linear, Out};
use super::repeat::{first, scale};

/// The remaining features of a value: the first `left` of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features {
    pub(super) of: usize,
    pub(super) left: usize,
    pub(super) place: Place,
}

/// The position of a value's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The second dimension of a value of this rank. At rank 2, each feature may be a run of values: a flattened image.
    Second { rank: usize },
    /// The last dimension, after any number of others.
    Last,
}

impl Place {
    pub(super) const FLAT: Self = Self::Second { rank: 2 };
}

impl Features {
    /// Whether dimensions follow that of the features.
    pub(super) fn is_picture(&self) -> bool {
        matches!(self.place, Place::Second { rank } if rank > 2)
    }

    /// The remaining number of `size` values that belong to the features; `None` if they cannot belong to them.
    pub(super) fn left_of(&self, size: usize) -> Option<usize> {
        let run = size.checked_div(self.of).filter(|run| *run > 0 && run * self.of == size)?;
        (run == 1 || self.place == Place::FLAT).then_some(self.left * run)
    }
}

/// The multiple of channels that engines convolve at a time. Other numbers cost as much as the next multiple, or far
/// more.
const BLOCK: f32 = 8.0;

/// The number of features in a share of a layer's features.
fn share(of: usize, width: f32, place: Place) -> usize {
    let share = of as f32 * width;
    let is_in_blocks = place != Place::FLAT && of as f32 >= 4.0 * BLOCK;
    let left =
        if is_in_blocks && width < 1.0 { (share / BLOCK).round().max(1.0) * BLOCK } else { share.round() };
    (left as usize).clamp(1, of.max(1))
}

impl Draft {
    /// Keeps a share `width` of the output features of each layer but the last.
    pub(super) fn thin(&mut self, width: f32) -> Result<(), Defect> {
        let last: Vec<usize> = Head::trace(self)?.layers.iter().map(|layer| layer.at).collect();
        let mut known: BTreeMap<String, Features> = BTreeMap::new();
        for at in 0..self.nodes.len() {
            let width = if last.contains(&at) { 1.0 } else { width };
            let layer = Linear::of(self, &self.nodes[at]);
            let is_behind = reads(&self.nodes[at]).iter().any(|name| known.contains_key(*name));
            let features = match layer {
                Some(Linear { out: Some(out), weight, weight_in, data, .. }) => {
                    let data = known.get(&self.nodes[at].input[data]).copied();
                    self.thin_layer(at, &weight, weight_in, data, &out, width)?
                }
                None if !is_behind => continue,
                // Recurrent layers have the features of several gates.
                Some(_) => None,
                None => self.thin_follower(at, &known)?,
            };
            let features = features.ok_or_else(|| Defect::Unthinned { node: self.label(at) })?;
            // If all features remain there is nothing to follow, as after the last layers.
            if features.left == features.of {
                continue;
            }
            known.extend(writes(&self.nodes[at]).map(|name| (name.to_owned(), features)));
        }
        Ok(())
    }

    /// Cuts a layer to the remaining features of its input, and to a share of its own.
    fn thin_layer(
        &mut self,
        at: usize,
        weight: &str,
        axis: usize,
        data: Option<Features>,
        out: &Out,
        width: f32,
    ) -> Result<Option<Features>, Defect> {
        let name = weight.to_owned();
        let mut weight = self.constants[&name].clone();
        let rank = weight.dims().len();
        let place = match (is_one_of(&self.nodes[at], &["Conv"]), data.map(|data| data.place)) {
            (true, None) => Place::Second { rank },
            (true, Some(Place::Second { rank: of_data })) if of_data == rank => Place::Second { rank },
            (false, Some(Place::Second { rank: 2 })) => Place::FLAT,
            (false, None | Some(Place::Last)) => {
                if out.is_flat {
                    Place::FLAT
                } else {
                    Place::Last
                }
            }
            _ => return Ok(None),
        };
        if let Some(data) = data {
            let read = weight.dims()[axis];
            let Some(left) = data.left_of(read) else { return Ok(None) };
            // Scales the remaining features up to replace the contribution of the others.
            weight = scale(&first(&weight, axis, left)?, read as f32 / left as f32)?;
        }
        let of = weight.dims()[out.weight_axis];
        let features = Features { of, left: share(of, width, place), place };
        let left = features.left;
        self.constants.insert(name, first(&weight, out.weight_axis, left)?);
        if let Some(bias) = &out.bias {
            let bias = self.constants[bias].clone();
            let is_thinned = self.thin_constant(bias, &features)?;
            return Ok(is_thinned.then_some(features));
        }
        Ok(Some(features))
    }

    /// Cuts a constant with a number for each feature, or for each value of their runs. A single number stays.
    pub(super) fn thin_constant(&mut self, constant: Tensor, features: &Features) -> Result<bool, Defect> {
        let dims = constant.dims();
        if constant.len() == 1 {
            return Ok(true);
        }
        let behind = match features.place {
            Place::Second { rank } if dims.len() > 1 => rank - 2,
            _ => 0,
        };
        let Some(axis) = dims.len().checked_sub(behind + 1) else { return Ok(false) };
        let Some(left) = features.left_of(dims[axis]).filter(|_| constant.len() == dims[axis]) else {
            return Ok(false);
        };
        let thin = first(&constant, axis, left)?;
        self.constants.insert(thin.name().to_owned(), thin);
        Ok(true)
    }
}
