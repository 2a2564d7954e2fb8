//! Replaces weights in an existing file.
//!
//! Training changes only the numbers of some constants. So only their bytes are replaced, and every other byte stays:
//! unknown fields, node metadata, the order. External weights are moved into the file, which then needs no other.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::external::External;
use super::proto::tensor_proto::DataLocation;
use super::proto::{NodeProto, TensorProto};
use super::wire::{self, Field, Rope};
use super::{DataType, Defect, Tensor};

/// The maximum size of protobuf messages: readers use 32-bit lengths.
pub(super) const LARGEST_FILE: u64 = i32::MAX as u64;

// Field numbers of the messages from the file down to a constant's numbers (see proto/onnx.proto).
const MODEL_GRAPH: u64 = 7;
const GRAPH_NODE: u64 = 1;
const GRAPH_INITIALIZER: u64 = 5;
const NODE_ATTRIBUTE: u64 = 5;
const ATTRIBUTE_TENSOR: u64 = 5;
const TENSOR_RAW: u64 = 9;
/// Fields of typed numbers, raw bytes, external entries and the location.
const TENSOR_DATA: [u64; 9] = [4, 5, 6, 7, TENSOR_RAW, 10, 11, 13, 14];

/// The file with `weights` in place of its constants of the same names.
pub(super) fn replace(file: &Bytes, weights: &[Tensor], external: &External) -> Result<Bytes, Defect> {
    let named = weights.iter().map(|tensor| (tensor.name(), tensor)).collect();
    let mut splice = Splice { weights: named, external, replaced: BTreeMap::new() };
    let mut model = Rope::default();
    for field in wire::fields(file)? {
        match field.number {
            MODEL_GRAPH => model.push_field(MODEL_GRAPH, splice.graph(&field.payload)?),
            _ => model.push(field.whole),
        }
    }
    if let Some(missing) = weights.iter().find(|tensor| !splice.replaced.contains_key(tensor.name())) {
        return Err(Defect::UnknownWeight { tensor: missing.name().into() });
    }
    if model.len() as u64 > LARGEST_FILE {
        let (actual, limit) = (model.len() as u64, LARGEST_FILE);
        return Err(Defect::TooLarge { what: "model with new weights".into(), actual, limit });
    }
    Ok(model.into_bytes())
}

struct Splice<'a> {
    weights: BTreeMap<&'a str, &'a Tensor>,
    external: &'a External,
    replaced: BTreeMap<&'a str, ()>,
}

impl<'a> Splice<'a> {
    fn graph(&mut self, graph: &Bytes) -> Result<Rope, Defect> {
        let mut rope = Rope::default();
        for field in wire::fields(graph)? {
            let spliced = match field.number {
                GRAPH_INITIALIZER => self.tensor(&field.payload, None)?,
                GRAPH_NODE => self.node(&field.payload)?,
                _ => None,
            };
            push(&mut rope, field, spliced);
        }
        Ok(rope)
    }

    /// Replaces the tensor of a `Constant` node, whose name is that of its output. Some exporters store all weights in
    /// such nodes.
    fn node(&mut self, node: &Bytes) -> Result<Option<Rope>, Defect> {
        let decoded: NodeProto = decode(node)?;
        let [output] = decoded.output.as_slice() else { return Ok(None) };
        if decoded.op_type != "Constant" {
            return Ok(None);
        }
        let mut rope = Rope::default();
        let mut changed = false;
        for field in wire::fields(node)? {
            let spliced = match field.number {
                NODE_ATTRIBUTE => self.attribute(&field.payload, output)?,
                _ => None,
            };
            changed |= spliced.is_some();
            push(&mut rope, field, spliced);
        }
        Ok(changed.then_some(rope))
    }

    fn attribute(&mut self, attribute: &Bytes, output: &str) -> Result<Option<Rope>, Defect> {
        let mut rope = Rope::default();
        let mut changed = false;
        for field in wire::fields(attribute)? {
            let spliced = match field.number {
                ATTRIBUTE_TENSOR => self.tensor(&field.payload, Some(output))?,
                _ => None,
            };
            changed |= spliced.is_some();
            push(&mut rope, field, spliced);
        }
        Ok(changed.then_some(rope))
    }

    /// The tensor with new numbers at the position of the old ones; `None` if it does not change.
    fn tensor(&mut self, bytes: &Bytes, constant: Option<&str>) -> Result<Option<Rope>, Defect> {
        let decoded: TensorProto = decode(bytes)?;
        let name = constant.unwrap_or(&decoded.name);
        let data = match self.weights.get_key_value(name) {
            Some((&name, &weight)) => {
                fits(&decoded, weight)?;
                self.replaced.insert(name, ());
                weight.data().clone()
            }
            None if decoded.data_location() == DataLocation::External => self.external.data(&decoded)?,
            None => return Ok(None),
        };
        let mut rope = Rope::default();
        let mut data = Some(data);
        for field in wire::fields(bytes)? {
            if !TENSOR_DATA.contains(&field.number) {
                rope.push(field.whole);
            } else if let Some(data) = data.take() {
                rope.push_field(TENSOR_RAW, data.into());
            }
        }
        if let Some(data) = data {
            rope.push_field(TENSOR_RAW, data.into());
        }
        Ok(Some(rope))
    }
}

fn push(rope: &mut Rope, field: Field, spliced: Option<Rope>) {
    match spliced {
        Some(body) => rope.push_field(field.number, body),
        None => rope.push(field.whole),
    }
}

fn decode<M: prost::Message + Default>(bytes: &Bytes) -> Result<M, Defect> {
    M::decode(bytes.clone()).map_err(|error| Defect::Malformed { message: error.to_string() })
}

fn fits(old: &TensorProto, new: &Tensor) -> Result<(), Defect> {
    let same_dims = old.dims.iter().copied().eq(new.dims().iter().map(|&dim| dim as i64));
    if same_dims && old.data_type == new.datatype() as i32 {
        return match new.datatype() {
            // Strings have no raw form in ONNX.
            DataType::String => Err(new.kind("a tensor of numbers")),
            _ => Ok(()),
        };
    }
    Err(Defect::WeightMismatch {
        tensor: new.name().into(),
        expected: old.dims.clone(),
        expected_type: DataType::try_from(old.data_type).unwrap_or_default(),
        actual: new.dims().to_vec(),
        actual_type: new.datatype(),
    })
}
