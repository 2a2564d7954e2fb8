//! Follows features through the operators between the layers of a network that is thinned.

use std::collections::BTreeMap;

use super::super::{Attribute, Defect, Tensor};
use super::draft::{Draft, int, is_one_of};
use super::plain::UNARY;
use super::repeat::first;
use super::thin::{Features, Place};

/// Operators that work on each channel of an image.
const PICTURES: [&str; 6] =
    ["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "GlobalLpPool"];
/// Operators on several values elementwise.
const JOINTS: [&str; 9] = ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "PRelu"];
/// Operators with one number per feature in inputs after the first, and the number of such inputs.
const NUMBERED: [(&str, usize); 3] =
    [("BatchNormalization", 4), ("InstanceNormalization", 2), ("LayerNormalization", 2)];
const REDUCTIONS: [&str; 4] = ["ReduceMean", "ReduceMax", "ReduceSum", "ReduceMin"];

impl Draft {
    /// Cuts the node at position `at` to the remaining features of its inputs, and returns the remaining features of
    /// its output; `None` if the operator is unknown.
    pub(super) fn thin_follower(
        &mut self,
        at: usize,
        known: &BTreeMap<String, Features>,
    ) -> Result<Option<Features>, Defect> {
        let node = self.nodes[at].clone();
        if is_one_of(&node, &JOINTS) {
            return self.thin_joint(&node.input, known);
        }
        // Other operators must read features only in their first input.
        let Some(data) = node.input.first().and_then(|name| known.get(name)).copied() else {
            return Ok(None);
        };
        if node.input.iter().skip(1).any(|name| known.contains_key(name)) {
            return Ok(None);
        }
        let is_picture = data.is_picture();
        if is_one_of(&node, &UNARY) || (is_picture && is_one_of(&node, &PICTURES)) {
            return Ok(Some(data));
        }
        if let Some((_, count)) = NUMBERED.iter().find(|(op, _)| is_one_of(&node, &[op])) {
            return self.thin_numbers(at, &data, *count);
        }
        if is_one_of(&node, &["Conv"]) && is_picture {
            return self.thin_depthwise(at, data);
        }
        let is_second = matches!(data.place, Place::Second { .. });
        let flat = Features { place: Place::FLAT, ..data };
        if is_one_of(&node, &["Flatten"]) {
            return Ok((is_second && int(&node, "axis").unwrap_or(1) == 1).then_some(flat));
        }
        if is_one_of(&node, &["Reshape"]) && is_second {
            return Ok(self.thin_reshape(at, &data)?.then_some(flat));
        }
        Ok(match data.place {
            Place::Second { rank } => {
                self.rank_behind(at, rank).map(|rank| Features { place: Place::Second { rank }, ..data })
            }
            Place::Last => None,
        })
    }

    /// Values that are combined keep the same features; the other inputs are constants.
    fn thin_joint(
        &mut self,
        inputs: &[String],
        known: &BTreeMap<String, Features>,
    ) -> Result<Option<Features>, Defect> {
        let Some(features) = inputs.iter().find_map(|name| known.get(name)).copied() else { return Ok(None) };
        let is_picture = features.is_picture();
        for name in inputs {
            let fits = match (known.get(name), self.constants.get(name)) {
                (Some(other), _) => *other == features,
                // A single dimension runs along an image's last one, whose size may equal the number of features by
                // chance.
                (None, Some(row)) if is_picture && row.dims().len() == 1 && row.len() > 1 => false,
                (None, Some(constant)) => self.thin_constant(constant.clone(), &features)?,
                (None, None) => false,
            };
            if !fits {
                return Ok(None);
            }
        }
        Ok(Some(features))
    }

    fn thin_numbers(
        &mut self,
        at: usize,
        features: &Features,
        count: usize,
    ) -> Result<Option<Features>, Defect> {
        let node = self.nodes[at].clone();
        let is_last = is_one_of(&node, &["LayerNormalization"]);
        let fits = match features.place {
            Place::Last => is_last && int(&node, "axis").unwrap_or(-1) == -1,
            Place::FLAT => !is_last || matches!(int(&node, "axis").unwrap_or(-1), -1 | 1),
            Place::Second { .. } => !is_last,
        };
        if !fits {
            return Ok(None);
        }
        for name in node.input.iter().skip(1).take(count).filter(|name| !name.is_empty()) {
            let Some(constant) = self.constants.get(name).cloned() else { return Ok(None) };
            if !self.thin_constant(constant, features)? {
                return Ok(None);
            }
        }
        Ok(Some(*features))
    }

    /// A convolution of each channel by itself.
    fn thin_depthwise(&mut self, at: usize, data: Features) -> Result<Option<Features>, Defect> {
        let node = &self.nodes[at];
        let weight = node.input.get(1).and_then(|name| self.constants.get(name)).cloned();
        let Some(weight) = weight.filter(|_| int(node, "group") == Some(data.of as i64)) else {
            return Ok(None);
        };
        let made = weight.dims().first().copied().unwrap_or_default();
        let Some(left) = made.checked_div(data.of).map(|each| each * data.left) else {
            return Ok(None);
        };
        let features = Features { of: made, left, place: data.place };
        let bias = node.input.get(2).filter(|name| !name.is_empty()).cloned();
        let thin = first(&weight, 0, features.left)?;
        self.constants.insert(thin.name().to_owned(), thin);
        for attribute in self.nodes[at].attribute.iter_mut().filter(|attribute| attribute.name == "group") {
            *attribute = Attribute::from(data.left as i64).to_proto("group");
        }
        let Some(bias) = bias else { return Ok(Some(features)) };
        let Some(bias) = self.constants.get(&bias).cloned() else { return Ok(None) };
        Ok(self.thin_constant(bias, &features)?.then_some(features))
    }

    /// A `Reshape` that flattens to a fixed size must have the thin size.
    fn thin_reshape(&mut self, at: usize, data: &Features) -> Result<bool, Defect> {
        let Some(target) = self.nodes[at].input.get(1).and_then(|name| self.constants.get(name)) else {
            return Ok(false);
        };
        let name = target.name().to_owned();
        let Some([rows, size]) = target.to_i64().ok().and_then(|target| <[i64; 2]>::try_from(target).ok())
        else {
            return Ok(false);
        };
        if size < 0 {
            return Ok(true);
        }
        let flat = Features { place: Place::FLAT, ..*data };
        let Some(left) = usize::try_from(size).ok().and_then(|size| flat.left_of(size)) else {
            return Ok(false);
        };
        let target = Tensor::from_i64(&name, &[2], &[rows, left as i64])?;
        let target = self.add_constant(target);
        self.nodes[at].input[1] = target;
        Ok(true)
    }

    /// The rank after a node that removes dimensions after the features.
    fn rank_behind(&self, at: usize, rank: usize) -> Option<usize> {
        let node = &self.nodes[at];
        let is_squeezed = is_one_of(node, &["Squeeze"]);
        if !is_squeezed && !is_one_of(node, &REDUCTIONS) {
            return None;
        }
        let stated = node.attribute.iter().find(|attribute| attribute.name == "axes");
        let axes = match stated {
            Some(attribute) => attribute.ints.clone(),
            None => self.constants.get(node.input.get(1)?)?.to_i64().ok()?,
        };
        let is_behind =
            |axis: &i64| (2..rank as i64).contains(&if *axis < 0 { axis + rank as i64 } else { *axis });
        let keeps = !is_squeezed && int(node, "keepdims").unwrap_or(1) != 0;
        (!axes.is_empty() && axes.iter().all(is_behind)).then(|| if keeps { rank } else { rank - axes.len() })
    }
}
