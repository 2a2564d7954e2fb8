//! Metrics of instances and nodes: jobs, states, conditions and relative speed.
//!
//! An instance's slowness is the time of a run there relative to the median instance, as placement knows it. It is therefore
//! independent of models and load. A node's slowness is the median of its instances relative to those of all other nodes, so one
//! slow instance does not make a node slow.

use std::collections::BTreeMap;

use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::series::Series;
use super::{latency_buckets, register};
use crate::discovery::{MemberReading, MemberState};
use crate::serve::conditions;

const INSTANCE: &[&str] = &["instance"];

/// Metrics of all instances.
pub(crate) struct InstanceFamilies {
    inflight: IntGaugeVec,
    service_time: HistogramVec,
    failures: IntCounterVec,
    states: IntGaugeVec,
    slow: GaugeVec,
    conditions: GaugeVec,
    nodes: GaugeVec,
}

/// Handles of one instance.
pub(crate) struct InstanceMetrics {
    pub(crate) inflight: Series<IntGaugeVec>,
    pub(crate) service_time: Series<HistogramVec>,
    pub(crate) failures: Series<IntCounterVec>,
}

impl InstanceFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let gauge = |name, help, labels| register(registry, GaugeVec::new(Opts::new(name, help), labels));
        let count = |name, help, labels| register(registry, IntGaugeVec::new(Opts::new(name, help), labels));
        let service_time =
            HistogramOpts::new("parm_instance_service_seconds", "Time of a job at an instance");
        let failures = Opts::new("parm_instance_failures_total", "Jobs that an instance failed");
        Self {
            inflight: count("parm_instance_inflight", "Jobs that an instance holds", INSTANCE),
            service_time: register(
                registry,
                HistogramVec::new(service_time.buckets(latency_buckets()), INSTANCE),
            ),
            failures: register(registry, IntCounterVec::new(failures, INSTANCE)),
            states: count("parm_instances", "Instances by state", &["state"]),
            slow: gauge(
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
        }
    }

    pub(crate) fn of(&self, name: &str) -> InstanceMetrics {
        let instance = InstanceMetrics {
            inflight: Series::new(&self.inflight, &[name]),
            service_time: Series::new(&self.service_time, &[name]),
            failures: Series::new(&self.failures, &[name]),
        };
        // Each instance has a line, even before its first job.
        let _ = instance.inflight.get();
        instance
    }

    /// Removes the series of an instance that is gone for good.
    pub(crate) fn forget(&self, name: &str) {
        // An error means that the series was never used.
        let _ = self.inflight.remove_label_values(&[name]);
        let _ = self.service_time.remove_label_values(&[name]);
        let _ = self.failures.remove_label_values(&[name]);
    }

    /// Replaces the values of all instances; those that are gone disappear.
    pub(crate) fn refresh(&self, all: &[MemberReading]) {
        use MemberState::{Connecting, Draining, Ejected, Ready, Refused};
        let count = |state| all.iter().filter(|own| own.state() == state).count() as i64;
        for (state, count) in [
            ("connecting", count(Connecting) + count(Refused)),
            ("ready", count(Ready)),
            ("ejected", count(Ejected)),
            ("draining", count(Draining)),
        ] {
            self.states.with_label_values(&[state]).set(count);
        }
        [&self.slow, &self.conditions, &self.nodes].into_iter().for_each(GaugeVec::reset);
        let mut paces = Vec::new();
        for own in all {
            let name = own.member.name.as_str();
            if let Some(condition) = conditions::NAMES[conditions::number(own.condition())] {
                self.conditions.with_label_values(&[name, condition]).set(1.0);
            }
            if own.view.instance.is_some() {
                let node = own.member.place().node.unwrap_or_default();
                let slowness = own.reading.and_then(|reading| reading.slower).unwrap_or(1.0);
                self.slow.with_label_values(&[name, &node]).set(slowness);
                paces.push((node, slowness));
            }
        }
        for (node, times) in nodes(&paces) {
            self.nodes.with_label_values(&[node]).set(times);
        }
    }
}

/// Slowness of each node relative to all others, if there are others, from the nodes of instances and their slowness.
fn nodes(paces: &[(String, f64)]) -> BTreeMap<&str, f64> {
    let names = paces.iter().map(|(node, _)| node.as_str()).filter(|node| !node.is_empty());
    let times = |name: &str| {
        let (own, others): (Vec<_>, Vec<_>) = paces.iter().partition(|(node, _)| node == name);
        Some(median(own)? / median(others).filter(|others| *others > 0.0)?)
    };
    names.filter_map(|node| Some((node, times(node)?))).collect()
}

fn median(paces: Vec<&(String, f64)>) -> Option<f64> {
    let mut times: Vec<f64> = paces.into_iter().map(|(_, slowness)| *slowness).collect();
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_slow_only_if_most_of_its_instances_are() {
        let all = [("n1", 3.0), ("n1", 3.2), ("n2", 1.0), ("n2", 1.0), ("n3", 9.0), ("n3", 1.0), ("", 1.0)];
        let all = all.map(|(node, slowness)| (node.to_owned(), slowness));
        let nodes = nodes(&all);
        assert_eq!(nodes.keys().copied().collect::<Vec<_>>(), ["n1", "n2", "n3"]);
        assert_eq!((nodes["n1"], nodes["n3"]), (3.0, 1.0));
        assert!(super::nodes(&all[..2]).is_empty(), "a single node has no slowness");
    }
}
