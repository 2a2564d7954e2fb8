//! Sites: instances of one process, card, node or zone become slow together.
//!
//! So of equally good instances a further attempt of a query takes the one that is farthest from the query's other attempts, running
//! or failed: best in another zone, then on another node, another card, in another process. Unknown sites count as far apart, so
//! without any known site nothing changes. A parity does the same with the instances of the members that it should save. Sites are preferred only, because queries go to all of them.

use crate::instance::InstanceKey;
use crate::query::{AttemptState, Query};
use crate::suits::Books;

/// The site of an instance, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The process, if it has several instances.
    pub process: Option<u32>,
    /// The accelerator.
    pub card: Option<u32>,
    /// The machine.
    pub node: Option<u32>,
    /// The part of the data centre, or of the cloud, that fails together.
    pub zone: Option<u32>,
}

/// The distance of two sites that are not known to share anything.
pub(crate) const FARTHEST: usize = 4;

impl Site {
    fn apart(self, other: Self) -> usize {
        let parts = |site: Self| [site.process, site.card, site.node, site.zone];
        let mut pairs = parts(self).into_iter().zip(parts(other));
        pairs.position(|(own, other)| own.is_some() && own == other).unwrap_or(FARTHEST)
    }
}

impl<P, O> Books<P, O> {
    /// The distance of an instance from the nearest one that runs a query or failed it, or that it should be apart from.
    pub(crate) fn apart(&self, query: &Query<P, O>, at: InstanceKey) -> usize {
        let site = |at: InstanceKey| self.instances.get(at).map(|own| own.site);
        let others = query.attempts.iter().filter_map(|attempt| match attempt.state {
            AttemptState::Running { instance, .. } | AttemptState::Failed { instance, .. } => site(instance),
            AttemptState::Wanted | AttemptState::Over => None,
        });
        let others = others.chain(query.apart_from.iter().copied().filter_map(site));
        let own = site(at).unwrap_or_default();
        others.map(|other| own.apart(other)).min().unwrap_or(FARTHEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Script;
    use crate::{InstanceSpec, ModelSettings, Policy, Submission};

    #[test]
    fn nearest_thing_that_is_shared_decides_and_unknown_is_far() {
        let site = |[process, card, node, zone]: [u32; 4]| {
            let known = |part| if part == 0 { None } else { Some(part) };
            Site { process: known(process), card: known(card), node: known(node), zone: known(zone) }
        };
        let here = site([1, 1, 1, 1]);
        let others = [[1, 1, 1, 1], [2, 1, 1, 1], [0, 2, 1, 1], [0, 0, 2, 1], [2, 2, 2, 2], [0, 0, 0, 0]];
        assert_eq!(others.map(|other| here.apart(site(other))), [0, 1, 2, 3, 4, 4]);
        assert_eq!(Site::default().apart(Site::default()), FARTHEST);
    }

    /// Three instances, of which the first two share a node.
    fn three(policy: Policy) -> Script {
        let mut script = Script::new(ModelSettings { policy, ..ModelSettings::default() });
        script.play("+1 +1 +1");
        for (instance, node) in script.instances.clone().into_iter().zip([1, 1, 2]) {
            let site = Site { node: Some(node), ..Site::default() };
            let spec = InstanceSpec { site, ..InstanceSpec::new(script.models.clone(), 0) };
            script.dispatcher.serve(script.now, instance, &spec);
        }
        script
    }

    fn play(policy: Policy, calls: &str) -> String {
        three(policy).play(calls)
    }

    #[test]
    fn parity_runs_on_another_node_than_the_members_of_its_group() {
        for (apart_from, place) in [(0, 2), (2, 0)] {
            let mut script = three(Policy::NONE);
            let apart_from = vec![script.instances[apart_from]];
            let parity = Submission::new(script.models[0], 0, crate::Time::MAX);
            let parity = Submission { background: true, apart_from, ..parity };
            script.dispatcher.submit(script.now, parity);
            assert_eq!(script.play("t"), format!("First 0 at {place}"));
        }
    }

    #[test]
    fn copies_and_retries_run_on_another_node_if_it_has_room() {
        assert_eq!(play(Policy::REPLICATE, "q"), "First 0 at 0, Copy 0 at 2");
        assert_eq!(play(Policy::NONE, "q fi0"), "First 0 at 0, Retry 0 at 2");
        assert_eq!(play(Policy::REPLICATE, "h2 q"), "First 0 at 0, Copy 0 at 1");
        assert_eq!(play(Policy::NONE, "q q"), "First 0 at 0, First 1 at 1", "others take turns");
    }
}
