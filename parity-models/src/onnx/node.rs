//! One operation of a graph.

use std::collections::BTreeMap;
use std::fmt;

use super::external::External;
use super::proto::{AttributeProto, NodeProto};
use super::{Attribute, Defect, Tensor, domain};

/// An operation with its inputs and outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Position in the graph, from 0.
    pub index: usize,
    /// The name given by the exporter; may be empty.
    pub name: String,
    /// Operator, such as `Conv`.
    pub op: String,
    /// Operator set; empty for ONNX's own.
    pub domain: String,
    /// Input values; an empty name is an omitted optional input.
    pub inputs: Vec<String>,
    /// Output values; an empty name is an omitted optional output.
    pub outputs: Vec<String>,
    /// Attributes by name.
    pub attributes: BTreeMap<String, Attribute>,
}

impl Node {
    pub(super) fn from_proto(index: usize, node: &NodeProto, external: &External) -> Result<Self, Defect> {
        let attribute = |a: &AttributeProto| Ok((a.name.clone(), Attribute::from_proto(a, external)?));
        Ok(Self {
            index,
            name: node.name.clone(),
            op: node.op_type.clone(),
            domain: domain::canonical(&node.domain).to_owned(),
            inputs: node.input.clone(),
            outputs: node.output.clone(),
            attributes: node.attribute.iter().map(attribute).collect::<Result<_, Defect>>()?,
        })
    }

    /// The input at position `at`, unless it is omitted.
    pub fn input(&self, at: usize) -> Option<&str> {
        self.inputs.get(at).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// The output at position `at`, unless it is omitted.
    pub fn output(&self, at: usize) -> Option<&str> {
        self.outputs.get(at).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Whether it is the operator `op` of ONNX's own set.
    pub fn is(&self, op: &str) -> bool {
        self.domain.is_empty() && self.op == op
    }

    /// An integer attribute, if set.
    pub fn int(&self, name: &str) -> Result<Option<i64>, Defect> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Int(value)) => Ok(Some(*value)),
            Some(other) => Err(self.kind(name, "an integer", other)),
        }
    }

    /// A float attribute, if set.
    pub fn float(&self, name: &str) -> Result<Option<f32>, Defect> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Float(value)) => Ok(Some(*value)),
            Some(other) => Err(self.kind(name, "a float", other)),
        }
    }

    /// A string attribute, if set.
    pub fn string(&self, name: &str) -> Result<Option<&str>, Defect> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::String(value)) => Ok(Some(value)),
            Some(other) => Err(self.kind(name, "a string", other)),
        }
    }

    /// A list of integers, if set.
    pub fn ints(&self, name: &str) -> Result<Option<&[i64]>, Defect> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Ints(values)) => Ok(Some(values)),
            Some(other) => Err(self.kind(name, "a list of integers", other)),
        }
    }

    /// A list of floats, if set.
    pub fn floats(&self, name: &str) -> Result<Option<&[f32]>, Defect> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Floats(values)) => Ok(Some(values)),
            Some(other) => Err(self.kind(name, "a list of floats", other)),
        }
    }

    /// A tensor attribute, if set.
    pub fn tensor(&self, name: &str) -> Result<Option<&Tensor>, Defect> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Tensor(tensor)) => Ok(Some(tensor)),
            Some(other) => Err(self.kind(name, "a tensor", other)),
        }
    }

    /// The value of a `Constant` node, from any of its attributes. `None` for other nodes.
    pub fn constant(&self) -> Result<Option<Tensor>, Defect> {
        if !self.is("Constant") {
            return Ok(None);
        }
        let name = self.output(0).unwrap_or_default();
        if let Some((key, attribute)) = self.attributes.first_key_value() {
            let tensor = match attribute {
                Attribute::Tensor(tensor) => tensor.clone().renamed(name),
                Attribute::Int(value) => Tensor::from_i64(name, &[], &[*value])?,
                Attribute::Ints(values) => Tensor::from_i64(name, &[values.len()], values)?,
                Attribute::Float(value) => Tensor::from_f32(name, &[], &[*value])?,
                Attribute::Floats(values) => Tensor::from_f32(name, &[values.len()], values)?,
                other => return Err(self.kind(key, "a tensor or a number", other)),
            };
            return Ok(Some(tensor));
        }
        Err(Defect::AttributeMissing { node: self.to_string(), attribute: "value".into() })
    }

    fn kind(&self, attribute: &str, expected: &'static str, actual: &Attribute) -> Defect {
        let (node, attribute) = (self.to_string(), attribute.to_owned());
        Defect::AttributeKind { node, attribute, expected, actual: actual.kind() }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&call(self.index, &self.domain, &self.op, &self.name))
    }
}

/// The name of the node at `index` in messages.
pub(super) fn label(index: usize, node: &NodeProto) -> String {
    call(index, domain::canonical(&node.domain), &node.op_type, &node.name)
}

/// `Conv 'features.0'`, or `Conv #3` if it has no name.
fn call(index: usize, domain: &str, op: &str, name: &str) -> String {
    let dot = if domain.is_empty() { "" } else { "." };
    match name {
        "" => format!("{domain}{dot}{op} #{index}"),
        name => format!("{domain}{dot}{op} '{name}'"),
    }
}
