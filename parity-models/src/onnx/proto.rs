//! The messages of an ONNX file (the public schema up to format version 13), and how to read a node.
//!
//! Written by hand, because nothing here reads half of the schema. Such messages are fields of bytes: they pass through a
//! file that is decoded and encoded again unchanged. `optional` stands where a reader tells an absent field from a zero
//! one; on the wire it is the same as the schema's proto2.
#![allow(missing_docs)] // the schema documents the fields

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use bytes::Bytes;
use prost::{Enumeration, Message};

use super::Attribute;

#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    #[prost(string, tag = "2")]
    pub producer_name: String,
    #[prost(string, tag = "3")]
    pub producer_version: String,
    #[prost(string, tag = "4")]
    pub domain: String,
    #[prost(int64, optional, tag = "5")]
    pub model_version: Option<i64>,
    #[prost(string, tag = "6")]
    pub doc_string: String,
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
    #[prost(bytes = "vec", repeated, tag = "20")]
    pub training_info: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "25")]
    pub functions: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "26")]
    pub configuration: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct OperatorSetIdProto {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(int64, tag = "2")]
    pub version: i64,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct StringStringEntryProto {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    #[prost(string, tag = "10")]
    pub doc_string: String,
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfoProto>,
    #[prost(bytes = "vec", repeated, tag = "14")]
    pub quantization_annotation: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
    #[prost(message, repeated, tag = "16")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    #[prost(string, tag = "6")]
    pub doc_string: String,
    #[prost(string, tag = "7")]
    pub domain: String,
    #[prost(string, tag = "8")]
    pub overload: String,
    #[prost(message, repeated, tag = "9")]
    pub metadata_props: Vec<StringStringEntryProto>,
    #[prost(bytes = "vec", repeated, tag = "10")]
    pub device_configurations: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub s: Option<Vec<u8>>,
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    #[prost(message, optional, tag = "6")]
    pub g: Option<GraphProto>,
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub strings: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "10")]
    pub tensors: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
    #[prost(string, tag = "13")]
    pub doc_string: String,
    #[prost(bytes = "vec", optional, tag = "14")]
    pub tp: Option<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "15")]
    pub type_protos: Vec<Vec<u8>>,
    #[prost(enumeration = "AttributeType", tag = "20")]
    pub r#type: i32,
    #[prost(string, tag = "21")]
    pub ref_attr_name: String,
    #[prost(bytes = "vec", optional, tag = "22")]
    pub sparse_tensor: Option<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "23")]
    pub sparse_tensors: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub segment: Option<Vec<u8>>,
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub string_data: Vec<Vec<u8>>,
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    #[prost(string, tag = "8")]
    pub name: String,
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub raw_data: Option<Bytes>,
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    #[prost(string, tag = "12")]
    pub doc_string: String,
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    #[prost(enumeration = "DataLocation", tag = "14")]
    pub data_location: i32,
    #[prost(message, repeated, tag = "16")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
    #[prost(message, optional, tag = "2")]
    pub indices: Option<TensorProto>,
    #[prost(int64, repeated, tag = "3")]
    pub dims: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
    #[prost(string, tag = "3")]
    pub doc_string: String,
    #[prost(message, repeated, tag = "4")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// The parts of a local function that are read.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionName {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "10")]
    pub domain: String,
}

/// A type. Only tensors are read.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub sequence_type: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "5")]
    pub map_type: Option<Vec<u8>>,
    #[prost(string, tag = "6")]
    pub denotation: String,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub opaque_type: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "8")]
    pub sparse_tensor_type: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "9")]
    pub optional_type: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Dimension {
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
    #[prost(string, tag = "3")]
    pub denotation: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum AttributeType {
    Undefined = 0,
    Float = 1,
    Int = 2,
    String = 3,
    Tensor = 4,
    Graph = 5,
    Floats = 6,
    Ints = 7,
    Strings = 8,
    Tensors = 9,
    Graphs = 10,
    SparseTensor = 11,
    SparseTensors = 12,
    TypeProto = 13,
    TypeProtos = 14,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum DataType {
    Undefined = 0,
    Float = 1,
    Uint8 = 2,
    Int8 = 3,
    Uint16 = 4,
    Int16 = 5,
    Int32 = 6,
    Int64 = 7,
    String = 8,
    Bool = 9,
    Float16 = 10,
    Double = 11,
    Uint32 = 12,
    Uint64 = 13,
    Complex64 = 14,
    Complex128 = 15,
    Bfloat16 = 16,
    Float8e4m3fn = 17,
    Float8e4m3fnuz = 18,
    Float8e5m2 = 19,
    Float8e5m2fnuz = 20,
    Uint4 = 21,
    Int4 = 22,
    Float4e2m1 = 23,
    Float8e8m0 = 24,
    Uint2 = 25,
    Int2 = 26,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum DataLocation {
    Default = 0,
    External = 1,
}

impl NodeProto {
    /// A node of ONNX's own operators with one output.
    pub fn new<const N: usize>(
        op: &str,
        name: &str,
        inputs: &[&str],
        output: &str,
        attributes: [(&str, Attribute); N],
    ) -> Self {
        Self {
            op_type: op.into(),
            name: name.into(),
            input: inputs.iter().map(|input| (*input).to_owned()).collect(),
            output: vec![output.into()],
            attribute: attributes.iter().map(|(key, value)| value.to_proto(key)).collect(),
            ..Self::default()
        }
    }

    /// Whether it is one of these operators of ONNX's own set.
    pub fn is(&self, ops: &[&str]) -> bool {
        canonical(&self.domain).is_empty() && ops.contains(&self.op_type.as_str())
    }

    /// An attribute.
    pub fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attribute.iter().find(|attribute| attribute.name == name)
    }

    /// An integer attribute.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name)?.i
    }

    /// A float attribute.
    pub fn float(&self, name: &str) -> Option<f32> {
        self.attribute(name)?.f
    }

    /// A list of integers.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    /// A string attribute.
    pub fn text(&self, name: &str) -> Option<String> {
        self.attribute(name)?.s.as_ref().map(|text| String::from_utf8_lossy(text).into_owned())
    }

    /// The input at this position, unless it is omitted.
    pub fn at(&self, place: usize) -> Option<&str> {
        self.input.get(place).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// The only output; `None` if the node makes several values.
    pub fn only_output(&self) -> Option<&str> {
        let mut made = self.output.iter().filter(|name| !name.is_empty());
        let first = made.next()?;
        made.next().is_none().then_some(first)
    }

    /// Sets an attribute.
    pub fn set(&mut self, name: &str, value: impl Into<Attribute>) {
        self.attribute.retain(|attribute| attribute.name != name);
        self.attribute.push(value.into().to_proto(name));
    }
}

impl ModelProto {
    /// Version of ONNX's own operator set; 1 if the file does not declare it, as the format specifies.
    pub fn opset(&self) -> i64 {
        let mut sets = self.opset_import.iter();
        sets.find(|set| canonical(&set.domain).is_empty()).map_or(1, |set| set.version)
    }
}

/// The spelling of an operator set used here: empty for ONNX's own operators.
pub(super) fn canonical(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// The spelling in messages.
pub(super) fn full(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

/// The names that a node requires: its inputs and the outer values that its bodies capture.
pub(super) fn reads(node: &NodeProto) -> BTreeSet<&str> {
    let mut names: BTreeSet<&str> = node.input.iter().map(String::as_str).filter(|n| !n.is_empty()).collect();
    for attribute in &node.attribute {
        for body in attribute.g.iter().chain(&attribute.graphs) {
            names.extend(captures(body));
        }
    }
    names
}

/// The names that a node produces.
pub(super) fn writes(node: &NodeProto) -> impl Iterator<Item = &str> {
    node.output.iter().map(String::as_str).filter(|name| !name.is_empty())
}

/// The names that callers or constants provide before any node runs.
pub(super) fn given(graph: &GraphProto) -> BTreeSet<&str> {
    let inputs = graph.input.iter().map(|input| input.name.as_str());
    let constants = graph.initializer.iter().map(|tensor| tensor.name.as_str());
    let sparse = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
    inputs.chain(constants).chain(sparse.map(|values| values.name.as_str())).collect()
}

fn captures(body: &GraphProto) -> BTreeSet<&str> {
    let mut known = given(body);
    let mut captured = BTreeSet::new();
    for node in &body.node {
        captured.extend(reads(node).into_iter().filter(|name| !known.contains(name)));
        known.extend(writes(node));
    }
    let outputs = body.output.iter().map(|output| output.name.as_str());
    captured.extend(outputs.filter(|name| !known.contains(name)));
    captured
}

/// Nodes by the order in which they can run: each follows those that it reads from, and otherwise the file's order is kept.
pub(super) struct Order {
    pub(super) places: Vec<usize>,
    /// For each node, how many reads are not served: some in a cycle, and behind one.
    pub(super) waits: Vec<usize>,
    /// For each node, those that read from it.
    pub(super) readers: Vec<Vec<usize>>,
}

impl Order {
    /// If several nodes produce a name, the first counts.
    pub(super) fn of(nodes: &[NodeProto]) -> Self {
        let mut makers: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, node) in nodes.iter().enumerate() {
            writes(node).for_each(|name| _ = makers.entry(name).or_insert(at));
        }
        let (mut waits, mut readers) = (vec![0; nodes.len()], vec![Vec::new(); nodes.len()]);
        for (at, node) in nodes.iter().enumerate() {
            for maker in reads(node).into_iter().filter_map(|name| makers.get(name)) {
                waits[at] += 1;
                readers[*maker].push(at);
            }
        }
        let ready = (0..waits.len()).filter(|&at| waits[at] == 0).map(Reverse);
        let (mut ready, mut places): (BinaryHeap<_>, _) = (ready.collect(), Vec::with_capacity(waits.len()));
        while let Some(Reverse(at)) = ready.pop() {
            places.push(at);
            for &reader in &readers[at] {
                waits[reader] -= 1;
                if waits[reader] == 0 {
                    ready.push(Reverse(reader));
                }
            }
        }
        Self { places, waits, readers }
    }
}
