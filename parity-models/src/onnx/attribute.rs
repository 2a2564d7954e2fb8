//! The attributes of a node.

use super::external::External;
use super::proto::{AttributeProto, AttributeType, GraphProto};
use super::{Defect, Tensor};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names explain the variants
pub enum Attribute {
    Int(i64),
    Float(f32),
    String(String),
    Tensor(Tensor),
    /// The body of `If`, `Loop` or `Scan`.
    Graph(Box<GraphProto>),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Strings(Vec<String>),
    /// A kind that no standard operator needs for inference (sparse tensors, types, lists of graphs).
    Other(AttributeType),
}

impl Attribute {
    pub(super) fn from_proto(attribute: &AttributeProto, external: &External) -> Result<Self, Defect> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(match kind(attribute) {
            AttributeType::Int => Self::Int(attribute.i()),
            AttributeType::Float => Self::Float(attribute.f()),
            AttributeType::String => Self::String(text(attribute.s())),
            AttributeType::Tensor => match &attribute.t {
                Some(tensor) => Self::Tensor(Tensor::from_proto(tensor, external)?),
                None => Self::Other(AttributeType::Tensor),
            },
            AttributeType::Graph => Self::Graph(Box::new(attribute.g.clone().unwrap_or_default())),
            AttributeType::Ints => Self::Ints(attribute.ints.clone()),
            AttributeType::Floats => Self::Floats(attribute.floats.clone()),
            AttributeType::Strings => Self::Strings(attribute.strings.iter().map(|s| text(s)).collect()),
            other => Self::Other(other),
        })
    }

    /// The attribute in its form in a file. `Other` keeps only its kind and is never written.
    pub fn to_proto(&self, name: &str) -> AttributeProto {
        let mut proto = AttributeProto { name: name.into(), ..AttributeProto::default() };
        let kind = match self {
            Self::Int(value) => {
                proto.i = Some(*value);
                AttributeType::Int
            }
            Self::Float(value) => {
                proto.f = Some(*value);
                AttributeType::Float
            }
            Self::String(text) => {
                proto.s = Some(text.clone().into_bytes());
                AttributeType::String
            }
            Self::Tensor(tensor) => {
                proto.t = Some(tensor.to_proto());
                AttributeType::Tensor
            }
            Self::Graph(graph) => {
                proto.g = Some((**graph).clone());
                AttributeType::Graph
            }
            Self::Ints(values) => {
                proto.ints = values.clone();
                AttributeType::Ints
            }
            Self::Floats(values) => {
                proto.floats = values.clone();
                AttributeType::Floats
            }
            Self::Strings(texts) => {
                proto.strings = texts.iter().map(|text| text.clone().into_bytes()).collect();
                AttributeType::Strings
            }
            Self::Other(kind) => *kind,
        };
        proto.set_type(kind);
        proto
    }

    /// Its kind, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::String(_) => "a string",
            Self::Tensor(_) => "a tensor",
            Self::Graph(_) => "a graph",
            Self::Ints(_) => "a list of integers",
            Self::Floats(_) => "a list of floats",
            Self::Strings(_) => "a list of strings",
            Self::Other(_) => "of a kind that is not read",
        }
    }
}

/// Files of the oldest format version do not store the kind: the field that is set shows it.
fn kind(attribute: &AttributeProto) -> AttributeType {
    match attribute.r#type() {
        AttributeType::Undefined if attribute.i.is_some() => AttributeType::Int,
        AttributeType::Undefined if attribute.f.is_some() => AttributeType::Float,
        AttributeType::Undefined if attribute.s.is_some() => AttributeType::String,
        AttributeType::Undefined if attribute.t.is_some() => AttributeType::Tensor,
        AttributeType::Undefined if attribute.g.is_some() => AttributeType::Graph,
        AttributeType::Undefined if !attribute.ints.is_empty() => AttributeType::Ints,
        AttributeType::Undefined if !attribute.floats.is_empty() => AttributeType::Floats,
        AttributeType::Undefined if !attribute.strings.is_empty() => AttributeType::Strings,
        kind => kind,
    }
}

macro_rules! from {
    ($($kind:ident($from:ty)),*) => {$(
        impl From<$from> for Attribute {
            fn from(value: $from) -> Self {
                Self::$kind(value.into())
            }
        }
    )*};
}

from!(Int(i64), Float(f32), String(&str), Ints(Vec<i64>), Ints(&[i64]), Floats(Vec<f32>), Tensor(Tensor));
