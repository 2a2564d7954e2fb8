//! A graph under change: constants in one place, each read by one node, with unique names.

use std::collections::{BTreeMap, BTreeSet};

use super::super::model::encode;
use super::super::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto};
use super::super::topology::{reads, writes};
use super::super::{Attribute, Defect, Limits, Model, Tensor, domain, node};
use super::unshare;

/// Files older than this must declare every constant as an input.
const IR_VERSION_OF_FREE_CONSTANTS: i64 = 4;

/// A graph under change. It starts as a copy of a valid model with external weights included, `Constant` nodes turned
/// into initialisers, and shared weights copied for each reader.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The model without nodes and constants.
    pub(super) model: ModelProto,
    /// The nodes. In the finished model each follows those that it reads from.
    pub nodes: Vec<NodeProto>,
    /// The constants by name. The finished model omits unused ones.
    pub constants: BTreeMap<String, Tensor>,
    names: BTreeSet<String>,
}

impl Draft {
    /// Starts from `model`; an invalid model gives its first fatal finding as the error.
    pub fn new(model: &Model) -> Result<Self, Defect> {
        if let Some(finding) = model.inspect().findings.into_iter().find(|finding| finding.is_fatal()) {
            return Err(Defect::Unsound { finding });
        }
        let read = model.graph()?;
        let mut copy = model.proto().clone();
        copy.ir_version = copy.ir_version.max(IR_VERSION_OF_FREE_CONSTANTS);
        let graph = copy.graph.as_mut().ok_or(Defect::NoGraph)?;
        graph.initializer.clear();
        graph.input.retain(|input| !read.initializers.contains_key(&input.name));
        let nodes = std::mem::take(&mut graph.node);
        let names =
            nodes.iter().flat_map(|node| reads(node).into_iter().chain(writes(node)).chain([&*node.name]));
        let names = names.chain(read.initializers.keys().map(String::as_str)).map(str::to_owned).collect();
        let mut draft = Self { model: copy, nodes: Vec::new(), constants: read.initializers, names };
        for (proto, node) in nodes.into_iter().zip(&read.nodes) {
            match node.constant() {
                Ok(Some(tensor)) => drop(draft.constants.insert(tensor.name().to_owned(), tensor)),
                // Not a constant, or a constant of strings, which no rewriting changes.
                _ => draft.nodes.push(proto),
            }
        }
        unshare::unshare(&mut draft);
        Ok(draft)
    }

    /// The finished model.
    pub fn finish(mut self) -> Result<Model, Defect> {
        self.drop_unused();
        let graph = self.graph_mut();
        graph.initializer = Vec::new();
        let constants = std::mem::take(&mut self.constants);
        let nodes = std::mem::take(&mut self.nodes);
        let graph = self.graph_mut();
        graph.initializer = constants.values().map(Tensor::to_proto).collect();
        graph.node = nodes;
        Model::from_bytes(encode(&self.model, "rewritten model")?, &Limits::default())
    }

    /// Version of ONNX's own operators.
    pub fn opset(&self) -> i64 {
        let mut sets = self.model.opset_import.iter();
        sets.find(|set| domain::canonical(&set.domain).is_empty()).map_or(1, |set| set.version)
    }

    /// Declares another version of ONNX's own operators. The nodes must have the same meaning in it.
    pub fn set_opset(&mut self, version: i64) {
        let own = |set: &&mut OperatorSetIdProto| domain::canonical(&set.domain).is_empty();
        if let Some(set) = self.model.opset_import.iter_mut().find(own) {
            set.version = version;
        }
    }

    /// Name, inputs, outputs and declarations; nodes and constants have their own fields.
    pub fn graph(&self) -> &GraphProto {
        self.model.graph.as_ref().expect("a draft is made of a graph")
    }

    /// The same, mutable.
    pub fn graph_mut(&mut self) -> &mut GraphProto {
        self.model.graph.as_mut().expect("a draft is made of a graph")
    }

    /// The name of the node at position `at` in messages.
    pub fn label(&self, at: usize) -> String {
        node::label(at, &self.nodes[at])
    }

    /// An unused name similar to `name`.
    pub fn fresh(&mut self, name: &str) -> String {
        let numbered = (2..).map(|number| format!("{name}.{number}"));
        let mut candidates = std::iter::once(name.to_owned()).chain(numbered);
        let free = candidates.find(|name| !self.names.contains(name)).expect("numbers do not run out");
        self.names.insert(free.clone());
        free
    }

    /// Adds a constant under an unused name similar to its own, and returns that name.
    pub fn add_constant(&mut self, tensor: Tensor) -> String {
        let name = self.fresh(tensor.name());
        self.constants.insert(name.clone(), tensor.renamed(&name));
        name
    }

    /// Creates a node of ONNX's own operators with one output.
    pub fn make<const N: usize>(
        &mut self,
        op: &str,
        inputs: &[&str],
        output: &str,
        attributes: [(&str, Attribute); N],
    ) -> NodeProto {
        NodeProto {
            op_type: op.into(),
            name: self.fresh(&format!("{output}/{op}")),
            input: inputs.iter().map(|input| (*input).to_owned()).collect(),
            output: vec![output.into()],
            attribute: attributes.iter().map(|(key, value)| value.to_proto(key)).collect(),
            ..NodeProto::default()
        }
    }

    /// Removes declarations of intermediate values that no longer hold.
    pub fn forget(&mut self, stale: impl Fn(&str) -> bool) {
        self.graph_mut().value_info.retain(|info| !stale(&info.name));
    }

    fn drop_unused(&mut self) {
        let mut used: BTreeSet<String> = self.nodes.iter().flat_map(reads).map(str::to_owned).collect();
        used.extend(self.graph().output.iter().map(|output| output.name.clone()));
        self.constants.retain(|name, _| used.contains(name));
    }
}
