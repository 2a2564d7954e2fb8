//! Cones: the nodes that compute one value from another, value by value.

use std::collections::{BTreeSet, HashMap};

use parm_parity_models::onnx::Tensor;
use parm_parity_models::onnx::rewrite::Draft;

use super::{Formula, Links, NodeExt};

/// Maximum nodes of a cone: exporters write an activation as a dozen.
const MOST: usize = 64;

/// A function of one value that works value by value: `top = f(root)`, with only numbers as constants.
#[derive(Clone, Debug)]
pub(crate) struct Cone {
    /// The input.
    pub(crate) root: String,
    /// The output.
    pub(crate) top: String,
    /// Positions of its nodes, each behind its inputs. Empty if root and top are the same.
    pub(crate) nodes: Vec<usize>,
}

impl Cone {
    /// The largest function of one value that makes `top`: walks back as long as all inputs lead to one value again.
    pub(crate) fn above(draft: &Draft, links: &Links, top: &str) -> Self {
        let mut nodes: BTreeSet<usize> = BTreeSet::new();
        let mut open: BTreeSet<(usize, String)> = BTreeSet::new();
        let mut given: BTreeSet<String> = BTreeSet::new();
        let mut best = Self { root: top.into(), top: top.into(), nodes: Vec::new() };
        let file =
            |name: &str, open: &mut BTreeSet<(usize, String)>, given: &mut BTreeSet<String>| match links
                .maker(name)
            {
                Some(maker) => _ = open.insert((maker, name.to_owned())),
                None => _ = given.insert(name.to_owned()),
            };
        file(top, &mut open, &mut given);
        // The last node is taken first, so that all readers of a value are known before the value.
        while let Some((at, _)) = open.pop_last() {
            let node = &draft.nodes[at];
            if Formula::of(node).is_none() || node.only_output().is_none() || nodes.len() == MOST {
                break;
            }
            nodes.insert(at);
            for name in node.input.iter().filter(|name| !name.is_empty()) {
                match draft.constants.get(name) {
                    Some(constant) if scalar(constant).is_some() => {}
                    Some(_) => return best,
                    None => file(name, &mut open, &mut given),
                }
            }
            let mut roots = open.iter().map(|(_, name)| name).chain(&given);
            if let (Some(root), None) = (roots.next(), roots.next()) {
                best = Self { root: root.clone(), nodes: nodes.iter().copied().collect(), ..best };
            }
        }
        best
    }

    /// Computes the function for one number.
    pub(crate) fn apply(&self, draft: &Draft, x: f64) -> Option<f64> {
        let mut values: HashMap<&str, f64> = HashMap::from([(self.root.as_str(), x)]);
        for &at in &self.nodes {
            let node = &draft.nodes[at];
            let inputs: Vec<Option<f64>> = node
                .input
                .iter()
                .map(|name| values.get(name.as_str()).copied().or_else(|| scalar(draft.constants.get(name)?)))
                .collect();
            values.insert(node.only_output()?, Formula::of(node)?.apply(&inputs)?);
        }
        values.get(self.top.as_str()).copied()
    }

    /// Copies its nodes so that they work on `root` instead, and returns the name of their output.
    pub(crate) fn copy(&self, draft: &mut Draft, root: &str) -> String {
        let mut names: HashMap<String, String> = HashMap::from([(self.root.clone(), root.to_owned())]);
        for &at in &self.nodes {
            let mut node = draft.nodes[at].clone();
            for name in &mut node.input {
                if let Some(copied) = names.get(name) {
                    name.clone_from(copied);
                }
            }
            node.name = draft.fresh(&node.name);
            for name in &mut node.output {
                let copied = draft.fresh(name);
                names.insert(std::mem::replace(name, copied.clone()), copied);
            }
            draft.nodes.push(node);
        }
        names.get(&self.top).cloned().unwrap_or_else(|| root.to_owned())
    }
}

/// The number in a constant of one element.
fn scalar(constant: &Tensor) -> Option<f64> {
    match constant.to_f32().ok()?[..] {
        [only] => Some(only.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Builder, Value};

    use super::*;

    /// x * sigmoid(x) behind a matrix product.
    fn swish() -> Draft {
        let mut builder = Builder::new("swish", 1);
        let x = builder.input(Value::batch_of_f32("x", &[4]));
        let w = builder.constant(Tensor::from_f32("w", &[4, 4], &[0.5; 16]).unwrap());
        let beta = builder.constant(Tensor::from_f32("beta", &[], &[2.0]).unwrap());
        let h = builder.node("MatMul", "h", &[&x, &w]);
        let scaled = builder.node("Mul", "scaled", &[&h, &beta]);
        let gate = builder.node("Sigmoid", "gate", &[&scaled]);
        builder.node("Mul", "y", &[&h, &gate]);
        builder.output(Value::batch_of_f32("y", &[4]));
        Draft::new(&builder.build().unwrap()).unwrap()
    }

    #[test]
    fn activation_of_several_nodes_is_one_cone() {
        let draft = swish();
        let cone = Cone::above(&draft, &Links::of(&draft), "y");
        assert_eq!((cone.root.as_str(), cone.nodes.len()), ("h", 3));
        let expected = 1.5 / (1.0 + (-3.0f64).exp());
        assert!((cone.apply(&draft, 1.5).unwrap() - expected).abs() < 1e-12);
    }

    #[test]
    fn a_copy_works_on_another_value() {
        let mut draft = swish();
        let cone = Cone::above(&draft, &Links::of(&draft), "y");
        let made = cone.copy(&mut draft, "elsewhere");
        let links = Links::of(&draft);
        let copied = Cone::above(&draft, &links, &made);
        assert_eq!(copied.root, "elsewhere");
        assert_eq!(copied.apply(&draft, 0.3), cone.apply(&draft, 0.3));
    }

    #[test]
    fn value_without_a_formula_is_its_own_cone() {
        let draft = swish();
        let cone = Cone::above(&draft, &Links::of(&draft), "h");
        assert_eq!((cone.root.as_str(), cone.nodes.len()), ("h", 0));
    }
}
