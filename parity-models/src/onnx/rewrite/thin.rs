//! Thins a network: fewer features in every layer from its input to its predictions.
//!
//! With half of the features a layer needs a quarter of the multiplications: a stand-in without a separate design.
//!
//! The remaining features of every value after a first layer are tracked, and each of its readers is cut to them. Layers
//! of equal width keep equally many features, always the first ones, so that values that are added keep the same features.
//! An operator that is not known to keep features in their places is an error, since a guess could break the network
//! silently.

use std::collections::BTreeMap;

use super::super::ops::axes;
use super::super::proto::{reads, writes};
use super::super::{Defect, Kind, Layer, LayerOp, Tensor};
use super::draft::Draft;
use super::head::Head;
use super::weights::{first, scale};

/// The remaining features of a value: the first `left` of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Features {
    of: usize,
    left: usize,
    place: Place,
}

/// The position of a value's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The second dimension of a value of this rank. At rank 2, each feature may be a run of values: a flattened image.
    Second { rank: usize },
    /// The last dimension, after any number of others.
    Last,
}

impl Place {
    const FLAT: Self = Self::Second { rank: 2 };

    /// Whether dimensions follow that of the features.
    fn is_picture(self) -> bool {
        matches!(self, Self::Second { rank: 3.. })
    }
}

impl Features {
    /// The remaining number of `size` values that belong to the features; `None` if they cannot belong to them.
    fn left_of(&self, size: usize) -> Option<usize> {
        let run = size.checked_div(self.of).filter(|run| *run > 0 && run * self.of == size)?;
        (run == 1 || self.place == Place::FLAT).then_some(self.left * run)
    }
}

type Known = BTreeMap<String, Features>;

/// The multiple of channels that engines convolve at a time. Other numbers cost as much as the next multiple, or far
/// more.
const BLOCK: f32 = 8.0;

/// The number of features in a share of a layer's features.
fn share(of: usize, width: f32, place: Place) -> usize {
    let share = of as f32 * width;
    let is_in_blocks = place != Place::FLAT && of as f32 >= 4.0 * BLOCK && width < 1.0;
    let left = if is_in_blocks { (share / BLOCK).round().max(1.0) * BLOCK } else { share.round() };
    (left as usize).clamp(1, of.max(1))
}

impl Draft {
    /// Keeps a share `width` of the output features of each layer but the last.
    pub(super) fn thin(&mut self, width: f32) -> Result<(), Defect> {
        let last: Vec<usize> = Head::trace(self)?.layers.iter().map(|layer| layer.at).collect();
        let mut known = Known::new();
        for at in 0..self.nodes.len() {
            let width = if last.contains(&at) { 1.0 } else { width };
            let layer = Layer::whole(self, &self.nodes[at]);
            let is_behind = reads(&self.nodes[at]).iter().any(|name| known.contains_key(*name));
            let features = match layer {
                Some(layer) => {
                    self.thin_layer(at, layer, known.get(&self.nodes[at].input[0]).copied(), width)?
                }
                None if !is_behind => continue,
                None => self.thin_follower(at, &known)?,
            };
            let unthinned = || {
                Defect::Unusable(format!(
                    "cannot thin the network: {} does not keep the features of a layer in their places: give a thin \
                     architecture, or quantise the model",
                    self.label(at)
                ))
            };
            let features = features.ok_or_else(unthinned)?;
            // If all features remain there is nothing to follow, as after the last layers.
            if features.left < features.of {
                known.extend(writes(&self.nodes[at]).map(|name| (name.to_owned(), features)));
            }
        }
        Ok(())
    }

    /// Cuts a layer to the remaining features of its input, and to a share of its own.
    fn thin_layer(
        &mut self,
        at: usize,
        layer: Layer,
        data: Option<Features>,
        width: f32,
    ) -> Result<Option<Features>, Defect> {
        let (name, bias) = (self.nodes[at].input[1].clone(), self.nodes[at].at(2).map(str::to_owned));
        let mut weight = self.constants[&name].clone();
        let rank = weight.dims().len();
        let place = match (layer.op, data.map(|data| data.place)) {
            (LayerOp::Conv, None) => Place::Second { rank },
            (LayerOp::Conv, Some(Place::Second { rank: of_data })) if of_data == rank => {
                Place::Second { rank }
            }
            (LayerOp::Conv, _) => return Ok(None),
            (_, Some(Place::FLAT)) | (LayerOp::Gemm, None | Some(Place::Last)) => Place::FLAT,
            (_, None | Some(Place::Last)) => Place::Last,
            _ => return Ok(None),
        };
        if let Some(data) = data {
            let read = weight.dims()[layer.reads];
            let Some(left) = data.left_of(read) else { return Ok(None) };
            // Scales the remaining features up to replace the contribution of the others.
            weight = scale(&first(&weight, layer.reads, left)?, read as f32 / left as f32)?;
        }
        let of = weight.dims()[layer.makes];
        let features = Features { of, left: share(of, width, place), place };
        self.constants.insert(name, first(&weight, layer.makes, features.left)?);
        Ok(match bias {
            Some(bias) => self.thin_constant(&bias, &features)?.then_some(features),
            None => Some(features),
        })
    }

    /// Cuts a constant with a number for each feature, or for each value of their runs. A single number stays. `false` for
    /// other values.
    fn thin_constant(&mut self, name: &str, features: &Features) -> Result<bool, Defect> {
        let Some(constant) = self.constants.get(name) else { return Ok(false) };
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
        let thin = first(constant, axis, left)?;
        self.constants.insert(name.to_owned(), thin);
        Ok(true)
    }

    /// Cuts the node at position `at` to the remaining features of its inputs, and returns the remaining features of
    /// its output; `None` if the operator is unknown.
    fn thin_follower(&mut self, at: usize, known: &Known) -> Result<Option<Features>, Defect> {
        let node = self.nodes[at].clone();
        let kind = Kind::of(&node);
        if kind == Kind::Joint {
            return self.thin_joint(&node.input, known);
        }
        // Other operators must read features only in their first input.
        let Some(data) = node.at(0).and_then(|name| known.get(name)).copied() else { return Ok(None) };
        if node.input.iter().skip(1).any(|name| known.contains_key(name)) {
            return Ok(None);
        }
        let (is_picture, flat) = (data.place.is_picture(), Features { place: Place::FLAT, ..data });
        Ok(match (kind, data.place) {
            (Kind::Unary | Kind::Same, _) => Some(data),
            (Kind::Pool, _) => is_picture.then_some(data),
            (Kind::Scaled(count), _) => self.thin_numbers(at, data, count)?,
            (Kind::Layer, _) if is_picture && node.is(&["Conv"]) => self.thin_depthwise(at, data)?,
            (_, Place::Second { rank }) => match node.op_type.as_str() {
                "Flatten" => (node.int("axis").unwrap_or(1) == 1).then_some(flat),
                "Reshape" => self.thin_reshape(at, &flat)?.then_some(flat),
                _ => {
                    self.rank_behind(at, rank).map(|rank| Features { place: Place::Second { rank }, ..data })
                }
            },
            _ => None,
        })
    }

    /// Values that are combined keep the same features; the other inputs are constants.
    fn thin_joint(&mut self, inputs: &[String], known: &Known) -> Result<Option<Features>, Defect> {
        let Some(features) = inputs.iter().find_map(|name| known.get(name)).copied() else { return Ok(None) };
        for name in inputs {
            // A single dimension runs along an image's last one, whose size may equal the number of features by chance.
            let is_along =
                |row: &Tensor| features.place.is_picture() && row.dims().len() == 1 && row.len() > 1;
            let fits = match known.get(name) {
                Some(other) => *other == features,
                None if self.constants.get(name).is_some_and(is_along) => false,
                None => self.thin_constant(name, &features)?,
            };
            if !fits {
                return Ok(None);
            }
        }
        Ok(Some(features))
    }

    fn thin_numbers(&mut self, at: usize, data: Features, count: usize) -> Result<Option<Features>, Defect> {
        let node = self.nodes[at].clone();
        let (is_last, axis) = (node.is(&["LayerNormalization"]), node.int("axis").unwrap_or(-1));
        let mut fits = match data.place {
            Place::Last => is_last && axis == -1,
            Place::FLAT => !is_last || matches!(axis, -1 | 1),
            Place::Second { .. } => !is_last,
        };
        for name in node.input.iter().skip(1).take(count).filter(|name| !name.is_empty()) {
            fits = fits && self.thin_constant(name, &data)?;
        }
        Ok(fits.then_some(data))
    }

    /// A convolution of each channel by itself.
    fn thin_depthwise(&mut self, at: usize, data: Features) -> Result<Option<Features>, Defect> {
        let node = &mut self.nodes[at];
        let weight = node.at(1).and_then(|name| self.constants.get(name));
        let is_depthwise = data.of > 0 && node.int("group") == Some(data.of as i64);
        let Some(weight) = weight.filter(|_| is_depthwise) else { return Ok(None) };
        let made = weight.dims().first().copied().unwrap_or_default();
        let features = Features { of: made, left: made / data.of * data.left, place: data.place };
        let (thin, bias) = (first(weight, 0, features.left)?, node.at(2).map(str::to_owned));
        node.set("group", data.left as i64);
        self.constants.insert(thin.name().to_owned(), thin);
        Ok(match bias {
            Some(bias) => self.thin_constant(&bias, &features)?.then_some(features),
            None => Some(features),
        })
    }

    /// A `Reshape` that flattens to a fixed size must have the thin size.
    fn thin_reshape(&mut self, at: usize, flat: &Features) -> Result<bool, Defect> {
        let target = self.nodes[at].at(1).and_then(|name| self.constants.get(name));
        let Some(target) = target else { return Ok(false) };
        let Ok([rows, size]) = <[i64; 2]>::try_from(target.to_i64().unwrap_or_default()) else {
            return Ok(false);
        };
        let Ok(size) = usize::try_from(size) else { return Ok(true) };
        let Some(left) = flat.left_of(size) else { return Ok(false) };
        let target = Tensor::from_i64(target.name(), &[2], &[rows, left as i64])?;
        self.nodes[at].input[1] = self.add_constant(target);
        Ok(true)
    }

    /// The rank after a node that removes dimensions after the features.
    fn rank_behind(&self, at: usize, rank: usize) -> Option<usize> {
        let node = &self.nodes[at];
        let is_squeezed = node.is(&["Squeeze"]);
        if !is_squeezed && Kind::of(node) != Kind::Reduced {
            return None;
        }
        let axes = axes(self, node, rank as i64).filter(|axes| !axes.is_empty())?;
        let keeps = !is_squeezed && node.int("keepdims").unwrap_or(1) != 0;
        let is_behind = axes.iter().all(|axis| (2..rank as i64).contains(axis));
        is_behind.then(|| if keeps { rank } else { rank - axes.len() })
    }
}
