//! Advice on a graph that tract cannot run: another engine, or a file that no engine loads.

use std::path::Path;

use parm_parity_models::onnx::{Limits, Model as File};
use tract_onnx::pb::{AttributeProto, GraphProto, ModelProto, NodeProto};

use crate::engine::TRY_ORT;

/// The advice on a file that no engine can load.
const BROKEN: &str = ": the file is broken: parm models inspect shows its faults";

/// Returns the end of an error about a broken file, such as one without its external data or with a cycle.
pub(super) fn broken(path: &Path) -> Option<&'static str> {
    let file = File::open(path, &Limits::default()).ok()?;
    // Another engine may know more types of elements.
    let is_known = |finding: &str| !finding.contains("unknown element type");
    let findings = file.inspect().findings;
    let mut faults = findings.iter().filter(|finding| finding.is_fatal).map(ToString::to_string);
    faults.any(|fault| is_known(&fault)).then_some(BROKEN)
}

/// Returns the end of an error about this model.
pub(super) fn advice(proto: &ModelProto) -> String {
    let is_own = |node: &NodeProto| {
        proto.functions.iter().any(|function| function.name.as_deref() == Some(&*node.op_type))
    };
    let known = ["ai.onnx", "com.microsoft", "org.pytorch."];
    let is_unknown = |node: &NodeProto| {
        !node.domain.is_empty()
            && !known.iter().any(|domain| node.domain.starts_with(domain))
            && !is_own(node)
    };
    match proto.graph.as_ref().and_then(|graph| find(graph, &is_unknown)) {
        None => TRY_ORT.to_owned(),
        Some(NodeProto { op_type, domain, .. }) => {
            format!(
                ": operator '{op_type}' of the domain '{domain}' is not one of ONNX: export the model without it"
            )
        }
    }
}

/// Returns the first such node of a graph and the graphs in its attributes.
fn find<'a>(graph: &'a GraphProto, is: &impl Fn(&NodeProto) -> bool) -> Option<&'a NodeProto> {
    let inner = |attribute: &'a AttributeProto| attribute.g.iter().chain(&attribute.graphs);
    graph.node.iter().find_map(|node| {
        if is(node) {
            Some(node)
        } else {
            node.attribute.iter().flat_map(inner).find_map(|graph| find(graph, is))
        }
    })
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Builder, Value};

    use super::super::engine;
    use crate::EngineConfig;

    /// The error of a model with these nodes, of which the last has the output.
    fn error_of(nodes: impl FnOnce(&mut Builder, &str) -> String) -> String {
        let mut graph = Builder::new("m", 1);
        let x = graph.input(Value::batch_of_f32("x", &[4]));
        let y = nodes(&mut graph, &x);
        graph.output(Value::batch_of_f32(&y, &[4]));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, graph.build().unwrap().bytes()).unwrap();
        engine().load(&path, &EngineConfig::default()).err().expect("tract does not run it").to_string()
    }

    #[test]
    fn other_engine_is_advised_for_an_operator_of_onnx() {
        let known = error_of(|graph, x| graph.node("Det", "y", &[x]));
        assert!(known.ends_with("engine 'ort' may run it (pip install onnxruntime)"), "{known}");
    }

    #[test]
    fn no_engine_is_advised_for_a_cyclic_graph() {
        let cyclic = error_of(|graph, x| {
            graph.node("Add", "sum", &[x, "y"]);
            graph.node("Relu", "y", &["sum"])
        });
        assert!(cyclic.ends_with("the file is broken: parm models inspect shows its faults"), "{cyclic}");
    }
}
