//! A graph under change: constants in one place, each read by one node, with unique names.

use std::collections::{BTreeMap, BTreeSet};

use super::super::graph::label;
use super::super::model::encode;
use super::super::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, Order, canonical, reads, writes,
};
use super::super::{Attribute, Defect, Limits, Model, Tensor};

/// Files older than this must declare every constant as an input.
const IR_VERSION_OF_FREE_CONSTANTS: i64 = 4;

/// A graph under change. It starts as a copy of a valid model with external weights included, `Constant` nodes turned
/// into initialisers, and shared weights copied for each reader.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The model without nodes and constants.
    model: ModelProto,
    /// The nodes. In the finished model each follows those that it reads from.
    pub nodes: Vec<NodeProto>,
    /// The constants by name. The finished model omits unused ones.
    pub constants: BTreeMap<String, Tensor>,
    names: BTreeSet<String>,
}

impl Draft {
    /// Starts from `model`; an invalid model gives its first fatal finding as the error.
    pub fn new(model: &Model) -> Result<Self, Defect> {
        if let Some(finding) = model.inspect().findings.into_iter().find(|finding| finding.is_fatal) {
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
        draft.unshare();
        Ok(draft)
    }

    /// The finished model.
    pub fn finish(mut self) -> Result<Model, Defect> {
        let mut used: BTreeSet<&str> = self.nodes.iter().flat_map(reads).collect();
        used.extend(self.graph().output.iter().map(|output| output.name.as_str()));
        let constants = self.constants.iter().filter(|(name, _)| used.contains(name.as_str()));
        let constants = constants.map(|(_, constant)| constant.to_proto()).collect();
        let nodes = std::mem::take(&mut self.nodes);
        let graph = self.graph_mut();
        (graph.initializer, graph.node) = (constants, nodes);
        Model::from_bytes(encode(&self.model, "rewritten model")?, &Limits::default())
    }

    /// Version of ONNX's own operators.
    pub fn opset(&self) -> i64 {
        self.model.opset()
    }

    /// Declares another version of ONNX's own operators. The nodes must have the same meaning in it.
    pub fn set_opset(&mut self, version: i64) {
        let own = |set: &&mut OperatorSetIdProto| canonical(&set.domain).is_empty();
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
        label(at, &self.nodes[at])
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
        NodeProto::new(op, &self.fresh(&format!("{output}/{op}")), inputs, output, attributes)
    }

    /// Gives a node a list of whole numbers: as an attribute, or from this version of the operators on as an input.
    pub fn give(
        &mut self,
        node: &mut NodeProto,
        name: &str,
        numbers: &[i64],
        as_input_from: i64,
    ) -> Result<(), Defect> {
        if self.opset() < as_input_from {
            node.set(name, numbers);
            return Ok(());
        }
        let tensor = Tensor::from_i64(&format!("{}/{name}", node.name), &[numbers.len()], numbers)?;
        node.input.push(self.add_constant(tensor));
        Ok(())
    }

    /// Moves every node behind its inputs; otherwise the order is kept.
    pub fn sort(&mut self) {
        let order = Order::of(&self.nodes).places;
        // A valid graph has no cycle, and no rewrite makes one.
        debug_assert_eq!(order.len(), self.nodes.len());
        let mut nodes: Vec<_> = std::mem::take(&mut self.nodes).into_iter().map(Some).collect();
        self.nodes = order.into_iter().filter_map(|at| nodes[at].take()).collect();
    }

    /// Removes declarations of intermediate values that no longer hold.
    pub fn forget(&mut self, stale: impl Fn(&str) -> bool) {
        self.graph_mut().value_info.retain(|info| !stale(&info.name));
    }

    /// Removes a softmax or sigmoid that produces an output; the output's name then denotes the raw values.
    pub fn strip_activation(&mut self) {
        let outputs: Vec<String> = self.graph().output.iter().map(|output| output.name.clone()).collect();
        for output in &outputs {
            let Some(at) = self.nodes.iter().position(|node| writes(node).any(|name| name == output)) else {
                continue;
            };
            let raw = self.nodes[at].input.first().cloned().unwrap_or_default();
            let is_made = self.nodes.iter().any(|node| writes(node).any(|name| name == raw));
            if !self.nodes[at].is(&["Softmax", "LogSoftmax", "Sigmoid"]) || !is_made || outputs.contains(&raw)
            {
                continue;
            }
            self.nodes.remove(at);
            for name in self.nodes.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output)) {
                if *name == raw {
                    name.clone_from(output);
                }
            }
            self.forget(|name| name == raw);
        }
    }

    /// Turns an `Identity` of a constant into a constant, and copies a shared weight for each reader after the first. Some
    /// exporters store equal weights once. Equal values do not tie two weights: training must be able to separate them,
    /// and widening one must not widen the other.
    fn unshare(&mut self) {
        let outputs: BTreeSet<String> =
            self.graph().output.iter().map(|output| output.name.clone()).collect();
        for node in std::mem::take(&mut self.nodes) {
            match self.alias(&node).filter(|copy| !outputs.contains(copy.name())) {
                Some(copy) => drop(self.constants.insert(copy.name().to_owned(), copy)),
                None => self.nodes.push(node),
            }
        }
        let mut seen = BTreeSet::new();
        let mut nodes = std::mem::take(&mut self.nodes);
        for input in nodes.iter_mut().flat_map(|node| &mut node.input) {
            let weight = self.constants.get(input.as_str());
            let weight = weight.filter(|tensor| tensor.datatype().is_float() && !tensor.dims().is_empty());
            if let Some(weight) = weight.filter(|_| !seen.insert(input.clone())).cloned() {
                *input = self.add_constant(weight);
            }
        }
        self.nodes = nodes;
    }

    /// The constant behind an `Identity`, under its new name.
    fn alias(&self, node: &NodeProto) -> Option<Tensor> {
        let ([input], [output]) = (node.input.as_slice(), node.output.as_slice()) else { return None };
        let constant = self.constants.get(input).filter(|_| node.is(&["Identity"]))?;
        Some(constant.clone().renamed(output))
    }
}
