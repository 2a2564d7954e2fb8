//! Finds the repeated blocks of a graph.

use std::collections::BTreeMap;

use parm_parity_models::onnx::rewrite::Draft;

use super::set::Set;
use crate::graph::{Links, Look, Survey};

/// Maximum nodes of a graph, and maximum values of one size: their pairs are compared.
const MOST_NODES: usize = 8192;
const MOST_VALUES: usize = 512;
/// Blocks of fewer nodes are not layers.
const SMALLEST: usize = 4;

/// A stream: its values before the first block, behind it, and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repeats {
    pub(crate) values: Vec<String>,
    /// Nodes per block.
    pub(crate) nodes: usize,
}

/// The repetition that covers most of the graph's nodes; `None` if no two blocks are alike.
pub(crate) fn repeats(draft: &Draft, links: &Links, survey: &Survey) -> Option<Repeats> {
    let looks = survey.looks();
    if draft.nodes.len() > MOST_NODES || looks.is_empty() {
        return None;
    }
    let reach = Reach::of(draft, links);
    let mut best: Option<Repeats> = None;
    for values in alike(draft, looks).into_values().filter(|values| (3..=MOST_VALUES).contains(&values.len()))
    {
        for start in 0..values.len() - 2 {
            for step in 1..=(values.len() - 1 - start) / 2 {
                let places: Vec<usize> = values[start..].iter().step_by(step).copied().collect();
                let Some(found) = reach.chain(draft, links, &places) else { continue };
                let nodes = |repeats: &Repeats| (repeats.values.len() - 1) * repeats.nodes;
                if best.as_ref().is_none_or(|best| nodes(&found) > nodes(best)) {
                    best = Some(found);
                }
            }
        }
    }
    best
}

/// Groups of nodes whose values could be the same stream: they have the same sizes in every run.
fn alike(draft: &Draft, looks: &[Look]) -> BTreeMap<Vec<Vec<usize>>, Vec<usize>> {
    let mut kinds: BTreeMap<Vec<Vec<usize>>, Vec<usize>> = BTreeMap::new();
    for (at, node) in draft.nodes.iter().enumerate() {
        let Some(made) = node.only_output() else { continue };
        let sizes: Option<Vec<Vec<usize>>> = looks.iter().map(|look| look.get(made).cloned()).collect();
        let Some(sizes) = sizes.filter(|sizes| sizes[0].len() > 1) else { continue };
        kinds.entry(sizes).or_default().push(at);
    }
    kinds
}

/// The ancestors and the descendants of each node, including itself.
struct Reach {
    before: Vec<Set>,
    behind: Vec<Set>,
}

impl Reach {
    /// Requires nodes in execution order.
    fn of(draft: &Draft, links: &Links) -> Self {
        let count = draft.nodes.len();
        let own = |at: usize| {
            let mut set = Set::of(count);
            set.insert(at);
            set
        };
        let mut reach = Self { before: (0..count).map(own).collect(), behind: (0..count).map(own).collect() };
        for at in 0..count {
            for maker in draft.nodes[at].input.iter().filter_map(|name| links.maker(name)) {
                let (made, later) = reach.before.split_at_mut(at);
                if let (Some(made), Some(own)) = (made.get(maker), later.first_mut()) {
                    own.extend(made);
                }
            }
        }
        for at in (0..count).rev() {
            let readers = draft.nodes[at].output.iter().flat_map(|name| links.readers(name));
            for &reader in readers {
                let (earlier, later) = reach.behind.split_at_mut(at + 1);
                if let (Some(own), Some(read)) = (earlier.last_mut(), later.get(reader.wrapping_sub(at + 1)))
                {
                    own.extend(read);
                }
            }
        }
        reach
    }

    /// The longest prefix of these values with the same block between each and the next.
    fn chain(&self, draft: &Draft, links: &Links, places: &[usize]) -> Option<Repeats> {
        let block = |from: usize, to: usize| -> Vec<usize> {
            self.before[to].between(&self.behind[places[0]], &self.before[from]).collect()
        };
        let operators = |nodes: &[usize]| {
            let mut operators: Vec<&str> = nodes.iter().map(|&at| draft.nodes[at].op_type.as_str()).collect();
            operators.sort_unstable();
            operators
        };
        let first = block(places[0], places[1]);
        if first.len() < SMALLEST {
            return None;
        }
        let wanted = operators(&first);
        let mut ends = vec![places[0]];
        for pair in places.windows(2) {
            let nodes = block(pair[0], pair[1]);
            let is_same = self.before[pair[1]].has(pair[0]) && operators(&nodes) == wanted;
            if !is_same || self.leads_past(draft, links, (places[0], pair[1])) {
                break;
            }
            ends.push(pair[1]);
        }
        let name = |&at: &usize| draft.nodes[at].only_output().map(str::to_owned);
        let values = ends.iter().map(name).collect::<Option<Vec<String>>>()?;
        (values.len() > 2).then_some(Repeats { values, nodes: first.len() })
    }

    /// Whether a path other than the value at position `end` leads from the blocks since `start` to later nodes.
    fn leads_past(&self, draft: &Draft, links: &Links, (start, end): (usize, usize)) -> bool {
        let inside = self.before[end].between(&self.behind[start], &self.before[start]);
        let mut others = inside.filter(|&at| at != end);
        others.any(|at| {
            draft.nodes[at].output.iter().any(|made| {
                links.is_kept(made) || links.readers(made).iter().any(|&reader| !self.before[end].has(reader))
            })
        })
    }
}
