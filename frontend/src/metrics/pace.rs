//! Relative speed and condition of instances, speed of nodes, and utilisation.
//!
//! An instance's slowness is the time of a run there relative to the median instance, as placement knows it. It is therefore
//! independent of models and load. A node's slowness is the median of its instances relative to those of all other nodes, so one
//! slow instance does not make a node slow.

use std::collections::BTreeMap;

use prometheus::{GaugeVec, Opts, Registry};

use super::{MODEL, register};
use crate::serve::reading::Condition;

/// Relative speed and condition of an instance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pace {
    pub(crate) instance: String,
    /// Empty if unknown.
    pub(crate) node: String,
    /// Time of a run there relative to the median instance, as placement knows it; `None` if it is not connected.
    pub(crate) slowness: Option<f64>,
    pub(crate) condition: Condition,
}

/// The metrics.
pub(super) struct PaceFamilies {
    instances: GaugeVec,
    conditions: GaugeVec,
    nodes: GaugeVec,
    pub(super) utilisation: GaugeVec,
}

impl PaceFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let gauge = |name, help, labels| register(registry, GaugeVec::new(Opts::new(name, help), labels));
        Self {
            instances: gauge(
                "parm_instance_slow",
                "Time of a run at an instance relative to the median instance, by which queries are placed; 1 if as fast as the others",
                &["instance", "node"],
            ),
            conditions: gauge(
                "parm_instance_condition",
                "1 for what is wrong with an instance: slow, silent, failing, unreachable, flapping or wrong",
                &["instance", "condition"],
            ),
            nodes: gauge(
                "parm_node_slow",
                "Service time of a node's instances, relative to those of all other nodes",
                &["node"],
            ),
            utilisation: gauge(
                "parm_utilisation",
                "Share of the usable slots that are busy with queries",
                MODEL,
            ),
        }
    }

    /// Replaces the values of all instances; those that are gone disappear.
    pub(super) fn refresh(&self, paces: &[Pace]) {
        self.instances.reset();
        self.conditions.reset();
        self.nodes.reset();
        for pace in paces {
            if let Some(condition) = Condition::NAMES[pace.condition.number()] {
                self.conditions.with_label_values(&[&*pace.instance, condition]).set(1.0);
            }
            if let Some(slowness) = pace.slowness {
                self.instances.with_label_values(&[&pace.instance, &pace.node]).set(slowness);
            }
        }
        for (node, times) in nodes(paces) {
            self.nodes.with_label_values(&[node]).set(times);
        }
    }
}

/// Slowness of each node relative to all others, if there are others.
fn nodes(paces: &[Pace]) -> BTreeMap<&str, f64> {
    let names = paces.iter().map(|pace| pace.node.as_str()).filter(|node| !node.is_empty());
    let times = |node: &str| {
        let (own, others): (Vec<_>, Vec<_>) = paces.iter().partition(|pace| pace.node == node);
        Some(median(own)? / median(others).filter(|others| *others > 0.0)?)
    };
    names.filter_map(|node| Some((node, times(node)?))).collect()
}

fn median(paces: Vec<&Pace>) -> Option<f64> {
    let mut times: Vec<f64> = paces.iter().filter_map(|pace| pace.slowness).collect();
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(instance: &str, node: &str, slowness: f64) -> Pace {
        let condition = if slowness < 2.0 { Condition::Well } else { Condition::Slow(slowness as f32) };
        Pace { instance: instance.into(), node: node.into(), slowness: Some(slowness), condition }
    }

    #[test]
    fn node_is_slow_only_if_most_of_its_instances_are() {
        let all = [
            pace("a", "n1", 3.0),
            pace("b", "n1", 3.2),
            pace("c", "n2", 1.0),
            pace("d", "n2", 1.0),
            pace("e", "n3", 9.0),
            pace("f", "n3", 1.0),
            pace("g", "", 1.0),
        ];
        let nodes = nodes(&all);
        assert_eq!(nodes.keys().copied().collect::<Vec<_>>(), ["n1", "n2", "n3"]);
        assert_eq!((nodes["n1"], nodes["n3"]), (3.0, 1.0));
        assert!(super::nodes(&all[..2]).is_empty(), "a single node has no slowness");
    }

    #[test]
    fn instance_that_is_gone_has_no_series() {
        let registry = Registry::new();
        let families = PaceFamilies::new(&registry);
        let series = || registry.gather().iter().map(|family| family.get_metric().len()).sum::<usize>();
        families.refresh(&[pace("a", "n1", 3.0), pace("b", "n2", 1.0)]);
        assert_eq!(series(), 5, "of each a slowness and a node, and the condition of the slow one");
        families.refresh(&[pace("b", "n2", 1.0)]);
        assert_eq!(series(), 1, "a slowness");
    }
}
