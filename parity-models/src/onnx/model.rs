//! An ONNX file in memory: its bytes, their decoded form, and its external files.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use prost::Message;

use super::external::{self, External};
use super::proto::{DataLocation, ModelProto, TensorProto};
use super::{DataType, Defect, Graph, Limits, Tensor, walk};

/// An ONNX file.
#[derive(Debug)]
pub struct Model {
    bytes: Bytes,
    proto: ModelProto,
    external: External,
}

impl Model {
    /// Reads `path`. External data files are read from its folder on demand.
    pub fn open(path: &Path, limits: &Limits) -> Result<Self, Defect> {
        let bytes = external::read(path, limits.model_bytes)?;
        Self::decode(bytes, External::new(path.parent(), limits))
    }

    /// Decodes a file without a folder, which cannot have external data.
    pub fn from_bytes(bytes: impl Into<Bytes>, limits: &Limits) -> Result<Self, Defect> {
        let bytes = bytes.into();
        let (actual, limit) = (bytes.len() as u64, limits.model_bytes);
        if actual > limit {
            return Err(Defect::TooLarge { what: "model".into(), actual, limit });
        }
        Self::decode(bytes, External::new(None, limits))
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The decoded file.
    pub fn proto(&self) -> &ModelProto {
        &self.proto
    }

    /// The graph, with all constants read.
    pub fn graph(&self) -> Result<Graph, Defect> {
        Graph::from_proto(&self.proto, &self.external)
    }

    /// The file with `weights` in place of its constants of the same names, types and dimensions: initialisers, or
    /// tensors of `Constant` nodes, named by their output, in which some exporters store all weights. External weights are
    /// moved into the file.
    pub fn with_weights(&self, weights: &[Tensor]) -> Result<Bytes, Defect> {
        let mut left: BTreeMap<&str, &Tensor> =
            weights.iter().map(|tensor| (tensor.name(), tensor)).collect();
        let mut proto = self.proto.clone();
        let graph = proto.graph.as_mut().ok_or(Defect::NoGraph)?;
        let stored = graph.initializer.iter_mut().map(|tensor| (tensor.name.clone(), tensor));
        let nodes = graph.node.iter_mut().filter(|node| node.op_type == "Constant" && node.output.len() == 1);
        let made = nodes.flat_map(|node| {
            let name = node.output[0].clone();
            let tensors = node.attribute.iter_mut().filter_map(|attribute| attribute.t.as_mut());
            tensors.map(move |tensor| (name.clone(), tensor))
        });
        for (name, tensor) in stored.chain(made) {
            if let Some(weight) = left.remove(name.as_str()) {
                fits(tensor, weight)?;
                let kept = std::mem::take(&mut tensor.name);
                *tensor = TensorProto { name: kept, ..weight.to_proto() };
            } else if tensor.data_location() == DataLocation::External {
                *tensor = Tensor::from_proto(tensor, &self.external)?.to_proto();
            }
        }
        if let Some(missing) = left.into_keys().next() {
            return Err(Defect::UnknownWeight { tensor: missing.into() });
        }
        encode(&proto, "model with new weights")
    }

    pub(super) fn external(&self) -> &External {
        &self.external
    }

    fn decode(bytes: Bytes, external: External) -> Result<Self, Defect> {
        walk::check(&bytes)?;
        let malformed = |error: prost::DecodeError| Defect::Malformed { message: error.to_string() };
        let proto = ModelProto::decode(bytes.clone()).map_err(malformed)?;
        if proto.graph.is_none() {
            return Err(Defect::NoGraph);
        }
        Ok(Self { bytes, proto, external })
    }
}

/// The maximum size of protobuf messages: readers use 32-bit lengths.
const LARGEST: u64 = i32::MAX as u64;

/// The bytes of a file; an error that calls it `what` if it is too large.
pub(super) fn encode(proto: &ModelProto, what: &str) -> Result<Bytes, Defect> {
    let actual = proto.encoded_len() as u64;
    if actual > LARGEST {
        return Err(Defect::TooLarge { what: what.into(), actual, limit: LARGEST });
    }
    Ok(proto.encode_to_vec().into())
}

fn fits(old: &TensorProto, new: &Tensor) -> Result<(), Defect> {
    let same_dims = old.dims.iter().copied().eq(new.dims().iter().map(|&dim| dim as i64));
    if same_dims && old.data_type == new.datatype() as i32 {
        return Ok(());
    }
    Err(Defect::WeightMismatch {
        tensor: new.name().into(),
        expected: old.dims.clone(),
        expected_type: DataType::try_from(old.data_type).unwrap_or_default(),
        actual: new.dims().to_vec(),
        actual_type: new.datatype(),
    })
}
