//! Accessors for the attributes, inputs and outputs of a node.

use parm_parity_models::onnx::proto::{AttributeProto, NodeProto, TensorProto};

/// Accessors that every rewrite uses.
pub(crate) trait NodeExt {
    /// Whether it is one of these operators of the standard ONNX set.
    fn is(&self, ops: &[&str]) -> bool;
    /// An integer attribute.
    fn int(&self, name: &str) -> Option<i64>;
    /// A list of integers.
    fn ints(&self, name: &str) -> Option<&[i64]>;
    /// A float attribute.
    fn float(&self, name: &str) -> Option<f32>;
    /// A list of strings.
    fn texts(&self, name: &str) -> Option<&[Vec<u8>]>;
    /// A tensor.
    fn tensor(&self, name: &str) -> Option<&TensorProto>;
    /// A string attribute.
    fn text(&self, name: &str) -> Option<String>;
    /// The input at this position, unless it is omitted.
    fn at(&self, place: usize) -> Option<&str>;
    /// The only output; `None` if the node makes several values.
    fn only_output(&self) -> Option<&str>;
}

impl NodeExt for NodeProto {
    fn is(&self, ops: &[&str]) -> bool {
        matches!(self.domain.as_str(), "" | "ai.onnx") && ops.contains(&self.op_type.as_str())
    }

    fn int(&self, name: &str) -> Option<i64> {
        setting(self, name)?.i
    }

    fn ints(&self, name: &str) -> Option<&[i64]> {
        setting(self, name).map(|attribute| attribute.ints.as_slice())
    }

    fn float(&self, name: &str) -> Option<f32> {
        setting(self, name)?.f
    }

    fn texts(&self, name: &str) -> Option<&[Vec<u8>]> {
        setting(self, name).map(|attribute| attribute.strings.as_slice())
    }

    fn tensor(&self, name: &str) -> Option<&TensorProto> {
        setting(self, name)?.t.as_ref()
    }

    fn text(&self, name: &str) -> Option<String> {
        setting(self, name)?.s.as_ref().map(|text| String::from_utf8_lossy(text).into_owned())
    }

    fn at(&self, place: usize) -> Option<&str> {
        self.input.get(place).map(String::as_str).filter(|name| !name.is_empty())
    }

    fn only_output(&self) -> Option<&str> {
        let mut made = self.output.iter().filter(|name| !name.is_empty());
        let first = made.next()?;
        made.next().is_none().then_some(first)
    }
}

fn setting<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}
