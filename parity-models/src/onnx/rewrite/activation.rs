//! Removes the activation at the end of a graph.

use std::collections::BTreeMap;

use super::super::topology::writes;
use super::draft::Draft;

impl Draft {
    /// Removes a softmax, log-softmax or sigmoid that produces an output; the output's name then denotes the raw
    /// values. Returns the removed operators by output.
    pub fn strip_activation(&mut self) -> BTreeMap<String, String> {
        let mut stripped = BTreeMap::new();
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
            stripped.insert(output.clone(), self.nodes.remove(at).op_type);
            for name in self.nodes.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output)) {
                if *name == raw {
                    name.clone_from(output);
                }
            }
            self.forget(|name| name == raw);
        }
        stripped
    }
}
