//! A node's attributes, read by an operator while a graph is prepared.
//!
//! Every read is recorded, and an attribute that was not read is an error: an operator that ignored it would compute
//! something different from the engine that serves the model.

use std::cell::RefCell;
use std::collections::BTreeSet;

use parm_parity_models::onnx::{Node, Tensor};

use crate::graph::Problem;

/// A node, its operator set, and which of its attributes were read.
pub(crate) struct Spec<'a> {
    pub(crate) node: &'a Node,
    pub(crate) opset: i64,
    read: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Spec<'a> {
    pub(crate) fn new(node: &'a Node, opset: i64) -> Self {
        Self { node, opset, read: RefCell::default() }
    }

    pub(crate) fn int(&self, name: &'static str, default: i64) -> Result<i64, Problem> {
        self.tick(name);
        Ok(self.node.int(name)?.unwrap_or(default))
    }

    pub(crate) fn flag(&self, name: &'static str) -> Result<bool, Problem> {
        Ok(self.int(name, 0)? != 0)
    }

    pub(crate) fn float(&self, name: &'static str, default: f32) -> Result<f32, Problem> {
        self.tick(name);
        Ok(self.node.float(name)?.unwrap_or(default))
    }

    pub(crate) fn string(&self, name: &'static str, default: &'static str) -> Result<&str, Problem> {
        self.tick(name);
        Ok(self.node.string(name)?.unwrap_or(default))
    }

    pub(crate) fn ints(&self, name: &'static str) -> Result<Option<Vec<i64>>, Problem> {
        self.tick(name);
        Ok(self.node.ints(name)?.map(<[i64]>::to_vec))
    }

    /// A list of sizes, or `default` if the attribute is not set.
    pub(crate) fn sizes(&self, name: &'static str, default: &[usize]) -> Result<Vec<usize>, Problem> {
        let Some(values) = self.ints(name)? else { return Ok(default.into()) };
        let sizes: Option<Vec<usize>> = values.iter().map(|&value| usize::try_from(value).ok()).collect();
        sizes.ok_or_else(|| self.value(name, format!("{values:?}"), "a list of sizes"))
    }

    pub(crate) fn tensor(&self, name: &'static str) -> Result<Option<Tensor>, Problem> {
        self.tick(name);
        Ok(self.node.tensor(name)?.cloned())
    }

    /// Requires that an integer attribute, if set, has the one supported value.
    pub(crate) fn only(&self, name: &'static str, value: i64, expected: &'static str) -> Result<(), Problem> {
        match self.int(name, value)? {
            actual if actual == value => Ok(()),
            actual => Err(self.value(name, actual.to_string(), expected)),
        }
    }

    /// Marks attributes without an effect here as read.
    pub(crate) fn ignore(&self, names: &[&'static str]) {
        names.iter().for_each(|name| self.tick(name));
    }

    /// The error for an attribute's value.
    pub(crate) fn value(&self, name: &str, value: String, expected: &'static str) -> Problem {
        Problem::AttributeValue { name: name.into(), value, expected }
    }

    /// Requires that only the first `most` outputs are used.
    pub(crate) fn outputs(&self, most: usize) -> Result<(), Problem> {
        let used = (most..self.node.outputs.len()).find(|&at| self.node.output(at).is_some());
        used.map_or(Ok(()), |at| Err(Problem::Output { at }))
    }

    /// Fails if an attribute was not read.
    pub(crate) fn finish(&self) -> Result<(), Problem> {
        let read = self.read.borrow();
        let left = self.node.attributes.keys().find(|name| !read.contains(name.as_str()));
        left.map_or(Ok(()), |name| Err(Problem::Attribute { name: name.clone() }))
    }

    fn tick(&self, name: &'static str) {
        self.read.borrow_mut().insert(name);
    }
}
