//! The view of a model with resolved names, decoded constants and typed declarations.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use super::model::External;
use super::proto::{
    AttributeProto, AttributeType, Dimension, GraphProto, ModelProto, NodeProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, canonical,
};
use super::{DataType, Defect, Tensor};

/// A graph: nodes in the file's order, declared inputs and outputs. Its content may still be invalid: see
/// [`Model::inspect`](super::Model::inspect).
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// The graph's name.
    pub name: String,
    /// Version of ONNX's own operator set.
    opset: i64,
    /// Inputs that a caller must supply (without those that only give an initialiser a default).
    pub inputs: Vec<Value>,
    /// Outputs.
    pub outputs: Vec<Value>,
    /// Nodes in the file's order: in a valid file every node follows those that it reads from.
    pub nodes: Vec<Node>,
    /// Constants of the graph that are not nodes, by name.
    pub initializers: BTreeMap<String, Tensor>,
}

impl Graph {
    pub(super) fn from_proto(model: &ModelProto, external: &External) -> Result<Self, Defect> {
        let graph = model.graph.as_ref().ok_or(Defect::NoGraph)?;
        let constant =
            |tensor: &TensorProto| Ok((tensor.name.clone(), Tensor::from_proto(tensor, external)?));
        let initializers: BTreeMap<String, Tensor> =
            graph.initializer.iter().map(constant).collect::<Result<_, Defect>>()?;
        let inputs = graph.input.iter().filter(|input| !initializers.contains_key(&input.name));
        let nodes = graph.node.iter().enumerate();
        Ok(Self {
            name: graph.name.clone(),
            opset: model.opset(),
            inputs: inputs.map(Value::from_proto).collect(),
            outputs: graph.output.iter().map(Value::from_proto).collect(),
            nodes: nodes.map(|(at, node)| Node::from_proto(at, node, external)).collect::<Result<_, _>>()?,
            initializers,
        })
    }

    /// Version of ONNX's own operator set.
    pub fn opset(&self) -> i64 {
        self.opset
    }

    /// The node that produces `value`.
    pub fn producer(&self, value: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.outputs.iter().any(|output| output == value))
    }

    /// The nodes that read `value` (without bodies of `If`, `Loop` and `Scan`).
    pub fn consumers<'a>(&'a self, value: &'a str) -> impl Iterator<Item = &'a Node> {
        self.nodes.iter().filter(move |node| node.inputs.iter().any(|input| input == value))
    }

    /// The constant `value`: an initialiser or the output of a `Constant` node.
    pub fn constant(&self, value: &str) -> Result<Option<Tensor>, Defect> {
        if let Some(tensor) = self.initializers.get(value) {
            return Ok(Some(tensor.clone()));
        }
        self.producer(value).map_or(Ok(None), Node::constant)
    }
}

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
            domain: canonical(&node.domain).to_owned(),
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
        self.read(name, "an integer", |found| match found {
            Attribute::Int(value) => Some(*value),
            _ => None,
        })
    }

    /// A float attribute, if set.
    pub fn float(&self, name: &str) -> Result<Option<f32>, Defect> {
        self.read(name, "a float", |found| match found {
            Attribute::Float(value) => Some(*value),
            _ => None,
        })
    }

    /// A string attribute, if set.
    pub fn string(&self, name: &str) -> Result<Option<&str>, Defect> {
        self.read(name, "a string", |found| match found {
            Attribute::String(value) => Some(value.as_str()),
            _ => None,
        })
    }

    /// A list of integers, if set.
    pub fn ints(&self, name: &str) -> Result<Option<&[i64]>, Defect> {
        self.read(name, "a list of integers", |found| match found {
            Attribute::Ints(values) => Some(values.as_slice()),
            _ => None,
        })
    }

    /// A tensor attribute, if set.
    pub fn tensor(&self, name: &str) -> Result<Option<&Tensor>, Defect> {
        self.read(name, "a tensor", |found| match found {
            Attribute::Tensor(tensor) => Some(tensor),
            _ => None,
        })
    }

    fn read<'a, T>(
        &'a self,
        name: &str,
        expected: &str,
        read: impl Fn(&'a Attribute) -> Option<T>,
    ) -> Result<Option<T>, Defect> {
        let Some(found) = self.attributes.get(name) else { return Ok(None) };
        read(found).map(Some).ok_or_else(|| self.kind(name, expected, found))
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
        Err(Defect::Unusable(format!("{self}: missing attribute 'value': export the model again")))
    }

    fn kind(&self, attribute: &str, expected: &str, actual: &Attribute) -> Defect {
        let actual = actual.kind();
        Defect::Unusable(format!("{self}: attribute '{attribute}' is {actual}, expected {expected}"))
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&call(self.index, &self.domain, &self.op, &self.name))
    }
}

/// The name of the node at `index` in messages.
pub(super) fn label(index: usize, node: &NodeProto) -> String {
    call(index, canonical(&node.domain), &node.op_type, &node.name)
}

/// `Conv 'features.0'`, or `Conv #3` if it has no name.
fn call(index: usize, domain: &str, op: &str, name: &str) -> String {
    let dot = if domain.is_empty() { "" } else { "." };
    match name {
        "" => format!("{domain}{dot}{op} #{index}"),
        name => format!("{domain}{dot}{op} '{name}'"),
    }
}

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
        let of = |kind: AttributeType| AttributeProto {
            name: name.into(),
            r#type: kind as i32,
            ..AttributeProto::default()
        };
        let bytes = |text: &String| text.clone().into_bytes();
        match self {
            Self::Int(value) => AttributeProto { i: Some(*value), ..of(AttributeType::Int) },
            Self::Float(value) => AttributeProto { f: Some(*value), ..of(AttributeType::Float) },
            Self::String(text) => AttributeProto { s: Some(bytes(text)), ..of(AttributeType::String) },
            Self::Tensor(tensor) => {
                AttributeProto { t: Some(tensor.to_proto()), ..of(AttributeType::Tensor) }
            }
            Self::Graph(graph) => AttributeProto { g: Some((**graph).clone()), ..of(AttributeType::Graph) },
            Self::Ints(values) => AttributeProto { ints: values.clone(), ..of(AttributeType::Ints) },
            Self::Floats(values) => AttributeProto { floats: values.clone(), ..of(AttributeType::Floats) },
            Self::Strings(texts) => {
                AttributeProto { strings: texts.iter().map(bytes).collect(), ..of(AttributeType::Strings) }
            }
            Self::Other(kind) => of(*kind),
        }
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

/// One dimension of a declared shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A known size.
    Fixed(usize),
    /// Any size, equal wherever the name occurs.
    Symbol(String),
    /// Any size.
    Unknown,
}

impl Dim {
    /// The size, if it is known.
    pub fn fixed(&self) -> Option<usize> {
        match self {
            Dim::Fixed(size) => Some(*size),
            _ => None,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(size) => size.fmt(f),
            Dim::Symbol(name) => f.write_str(name),
            Dim::Unknown => f.write_str("?"),
        }
    }
}

/// A number, a name, or null.
impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Dim::Fixed(size) => serializer.serialize_u64(*size as u64),
            Dim::Symbol(name) => serializer.serialize_str(name),
            Dim::Unknown => serializer.serialize_none(),
        }
    }
}

/// A declared input, output or intermediate value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Value {
    /// The value's name in the graph.
    pub name: String,
    /// Element type; `Undefined` if the file does not declare it, or if the value is not a tensor.
    #[serde(serialize_with = "displayed")]
    pub datatype: DataType,
    /// Dimensions; `None` if not even the rank is declared.
    pub shape: Option<Vec<Dim>>,
}

impl Value {
    /// Decodes a declaration.
    pub fn from_proto(info: &ValueInfoProto) -> Self {
        let tensor = info.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
        let datatype = tensor.and_then(|tensor| DataType::try_from(tensor.elem_type).ok());
        Self {
            name: info.name.clone(),
            datatype: datatype.unwrap_or(DataType::Undefined),
            shape: tensor.and_then(|tensor| tensor.shape.as_ref()).map(dims),
        }
    }

    /// The declaration in its form in a file.
    pub fn to_proto(&self) -> ValueInfoProto {
        let dim = |dim: &Dim| match dim {
            Dim::Fixed(size) => Dimension { dim_value: Some(*size as i64), ..Dimension::default() },
            Dim::Symbol(name) => Dimension { dim_param: Some(name.clone()), ..Dimension::default() },
            Dim::Unknown => Dimension::default(),
        };
        let shape = self.shape.as_ref().map(|dims| TensorShapeProto { dim: dims.iter().map(dim).collect() });
        let tensor_type = Some(TensorTypeProto { elem_type: self.datatype as i32, shape });
        let kind = TypeProto { tensor_type, ..TypeProto::default() };
        ValueInfoProto { name: self.name.clone(), r#type: Some(kind), ..ValueInfoProto::default() }
    }

    /// The shape in the serving protocol's form: -1 for dynamic sizes. `None` if the rank is not declared.
    pub fn protocol_shape(&self) -> Option<Vec<i64>> {
        let shape = self.shape.as_ref()?;
        Some(shape.iter().map(|dim| dim.fixed().map_or(-1, |size| size as i64)).collect())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.datatype)?;
        match &self.shape {
            None => f.write_str("[..]"),
            Some(shape) => {
                let dims: Vec<String> = shape.iter().map(Dim::to_string).collect();
                write!(f, "[{}]", dims.join(", "))
            }
        }
    }
}

fn dims(shape: &TensorShapeProto) -> Vec<Dim> {
    let dim = |dim: &Dimension| match (dim.dim_value, &dim.dim_param) {
        // Some exporters write -1 for dynamic sizes.
        (Some(size), _) => usize::try_from(size).map_or(Dim::Unknown, Dim::Fixed),
        (None, Some(name)) if !name.is_empty() => Dim::Symbol(name.clone()),
        _ => Dim::Unknown,
    };
    shape.dim.iter().map(dim).collect()
}

fn displayed<S: Serializer>(datatype: &DataType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(datatype)
}
