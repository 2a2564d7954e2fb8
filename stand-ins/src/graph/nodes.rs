//! What is asked of a node as the file has it.

use parm_parity_models::onnx::proto::{AttributeProto, NodeProto};

/// Questions that every rewriting asks.
pub(crate) trait NodeExt {
    /// Whether it is one of these operators of ONNX's own set.
    fn is(&self, ops: &[&str]) -> bool;
    /// An integer setting.
    fn int(&self, name: &str) -> Option<i64>;
    /// A list of integers.
    fn ints(&self, name: &str) -> Option<&[i64]>;
    /// A number.
    fn float(&self, name: &str) -> Option<f32>;
    /// A string.
    fn text(&self, name: &str) -> Option<String>;
    /// The input in this place, unless it is left out.
    fn at(&self, place: usize) -> Option<&str>;
    /// The only output; `None` of a node that makes several values.
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
