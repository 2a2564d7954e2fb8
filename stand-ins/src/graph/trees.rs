//! Counts the comparisons of ensembles of trees.

use std::collections::{HashMap, HashSet};

use parm_parity_models::onnx::proto::NodeProto;

use super::NodeExt;

const LEAF: &[u8] = b"LEAF";

/// The comparisons of one row: the sum of the depths of all trees. `None` if the lists do not describe trees.
pub(super) fn comparisons(node: &NodeProto) -> Option<f64> {
    let (trees, names) = (node.ints("nodes_treeids")?, node.ints("nodes_nodeids")?);
    let (yes, no) = (node.ints("nodes_truenodeids")?, node.ints("nodes_falsenodeids")?);
    let modes = node.texts("nodes_modes")?;
    if [names.len(), yes.len(), no.len(), modes.len()] != [trees.len(); 4] {
        return None;
    }
    let places: HashMap<(i64, i64), usize> =
        trees.iter().copied().zip(names.iter().copied()).enumerate().map(|(at, name)| (name, at)).collect();
    let below = |at: &usize| [yes[*at], no[*at]].map(|name| places.get(&(trees[*at], name)).copied());
    let is_branch = |at: &usize| modes[*at] != LEAF;
    let inner: HashSet<usize> =
        (0..trees.len()).filter(is_branch).flat_map(|at| below(&at)).flatten().collect();
    let mut level: Vec<usize> = (0..trees.len()).filter(|at| !inner.contains(at)).collect();
    let (mut seen, mut sum) = (0, 0);
    while !level.is_empty() {
        seen += level.len();
        // A node with two parents makes it a graph, which has no end if it is a circle.
        if seen > trees.len() {
            return None;
        }
        level.retain(is_branch);
        sum += level.iter().map(|at| trees[*at]).collect::<HashSet<i64>>().len();
        level = level.iter().flat_map(below).flatten().collect();
    }
    Some(sum as f64)
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::Attribute;

    use super::*;

    /// Two trees, of depths 2 and 1.
    fn ensemble() -> NodeProto {
        let ints = |name: &str, values: &[i64]| Attribute::Ints(values.to_vec()).to_proto(name);
        let modes = ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"];
        NodeProto {
            attribute: vec![
                ints("nodes_treeids", &[0, 0, 0, 0, 0, 7, 7, 7]),
                ints("nodes_nodeids", &[0, 1, 2, 3, 4, 0, 1, 2]),
                ints("nodes_truenodeids", &[1, 0, 3, 0, 0, 1, 0, 0]),
                ints("nodes_falsenodeids", &[2, 0, 4, 0, 0, 2, 0, 0]),
                Attribute::Strings(modes.map(str::to_owned).to_vec()).to_proto("nodes_modes"),
            ],
            ..NodeProto::default()
        }
    }

    #[test]
    fn comparisons_of_a_row_are_the_depths_of_the_trees() {
        assert_eq!(comparisons(&ensemble()), Some(3.0));
        let mut short = ensemble();
        short.attribute[1].ints.pop();
        assert_eq!((comparisons(&short), comparisons(&NodeProto::default())), (None, None));
    }

    #[test]
    fn circle_in_a_tree_ends_the_count() {
        let mut circle = ensemble();
        // The root's second child is its own child.
        circle.attribute[2].ints[2] = 1;
        circle.attribute[3].ints[2] = 2;
        assert_eq!(comparisons(&circle), None);
    }
}
