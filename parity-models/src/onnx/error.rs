//! The errors of reading and rewriting ONNX files.

use std::path::PathBuf;

use super::Finding;

/// A defect of an ONNX file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum Defect {
    #[error("cannot read '{}': {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("'{what}' has {actual} bytes, the limit is {limit}: raise the limit or shrink the model")]
    TooLarge { what: String, actual: u64, limit: u64 },
    #[error("the file has more than {limit} nodes, names and other parts: simplify the model, or split it")]
    TooManyParts { limit: usize },
    #[error("invalid ONNX file: {message}")]
    Malformed { message: String },
    #[error("the file has no graph: export the model again")]
    NoGraph,
    #[error("cannot rewrite an invalid graph: {finding}")]
    Unsound { finding: Finding },
    /// A tensor or a node that cannot be read or rewritten: a sentence that names it, and the remedy.
    #[error("{0}")]
    Unusable(String),
}

impl Defect {
    pub(super) fn of_tensor(name: &str, problem: &str) -> Self {
        Self::Unusable(format!("tensor '{name}' {problem}"))
    }

    pub(super) fn no_first_layer(output: &str) -> Self {
        Self::Unusable(format!(
            "output '{output}' does not pass a Conv, Gemm or MatMul with constant weights after the input: slots need a first \
             layer to widen: use another code"
        ))
    }

    pub(super) fn control_flow(node: &str) -> Self {
        Self::Unusable(format!(
            "{node} has a body that reads values of each slot: inline it, or use a code that needs one slot"
        ))
    }
}
