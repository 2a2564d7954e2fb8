//! Failure domains of instances, and the distance between them.
//!
//! Instances of one process, card, node or zone become slow together. So a job that is to save a query prefers another
//! zone than the jobs that already run the query, then another node, card and process, then any instance with room.
//! Unknown sites count as apart, so dispatch without any known site works as if sites did not exist. Sites are only
//! preferred, because queries go to all of them.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::{CardId, NodeId, ProcessId, ZoneId};

/// The site of an instance, as far as discovery knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The process, if it has several instances.
    #[serde(default)]
    pub process: Option<ProcessId>,
    /// The accelerator.
    #[serde(default)]
    pub card: Option<CardId>,
    /// The machine.
    pub node: Option<NodeId>,
    /// The part of the data centre, or of the cloud, that fails together.
    pub zone: Option<ZoneId>,
}

/// The distance of two sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Apart {
    Nothing,
    Processes,
    Cards,
    Nodes,
    Zones,
}

impl Apart {
    /// The distances from the preferred one to the least acceptable one.
    pub(crate) const WISHES: [Self; 5] =
        [Self::Zones, Self::Nodes, Self::Cards, Self::Processes, Self::Nothing];
}

/// The sites that a job should avoid.
pub(crate) type Sites = SmallVec<[Site; 4]>;

impl Site {
    pub(crate) fn is_known(self) -> bool {
        self.process.is_some() || self.card.is_some() || self.node.is_some() || self.zone.is_some()
    }

    fn apart(self, other: Self) -> Apart {
        let same = |one: Option<u32>, other: Option<u32>| one.is_some() && one == other;
        if same(self.process.map(|process| process.0), other.process.map(|process| process.0)) {
            Apart::Nothing
        } else if same(self.card.map(|card| card.0), other.card.map(|card| card.0)) {
            Apart::Processes
        } else if same(self.node.map(|node| node.0), other.node.map(|node| node.0)) {
            Apart::Cards
        } else if same(self.zone.map(|zone| zone.0), other.zone.map(|zone| zone.0)) {
            Apart::Nodes
        } else {
            Apart::Zones
        }
    }

    /// The distance from the nearest of these sites.
    pub(crate) fn apart_from_all(self, others: &Sites) -> Apart {
        others.iter().map(|other| self.apart(*other)).min().unwrap_or(Apart::Zones)
    }
}

/// Chooses the farthest candidate: tries each distance in turn, and only once if no site is known.
pub(crate) fn farthest<T>(others: &Sites, mut choose: impl FnMut(Apart) -> Option<T>) -> Option<T> {
    if others.is_empty() {
        return choose(Apart::Nothing);
    }
    Apart::WISHES.into_iter().find_map(choose)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(node: Option<u32>, zone: Option<u32>) -> Site {
        Site { node: node.map(NodeId), zone: zone.map(ZoneId), ..Site::default() }
    }

    #[test]
    fn unknown_site_is_apart_and_same_process_is_nearest() {
        let here = site(Some(1), Some(1));
        for (other, expected) in [
            (here, Apart::Cards),
            (site(Some(1), None), Apart::Cards),
            (site(Some(2), Some(1)), Apart::Nodes),
            (site(None, Some(1)), Apart::Nodes),
            (site(Some(2), Some(2)), Apart::Zones),
            (site(Some(2), None), Apart::Zones),
            (Site::default(), Apart::Zones),
        ] {
            assert_eq!(here.apart(other), expected, "{other:?}");
            assert_eq!(other.apart(here), expected, "{other:?}");
        }
        let others = Sites::from_slice(&[site(Some(2), Some(2)), site(Some(3), Some(1))]);
        let within =
            |process, card| Site { process: Some(ProcessId(process)), card: Some(CardId(card)), ..here };
        assert_eq!(within(1, 1).apart(within(1, 2)), Apart::Nothing);
        assert_eq!(within(1, 1).apart(within(2, 1)), Apart::Processes);
        assert_eq!(within(1, 1).apart(within(2, 2)), Apart::Cards);
        assert_eq!(here.apart_from_all(&others), Apart::Nodes, "the nearest counts");
        assert_eq!(Site::default().apart_from_all(&Sites::new()), Apart::Zones);
    }

    #[test]
    fn farthest_site_is_tried_first_and_unknown_sites_once() {
        let mut asked = Vec::new();
        let none = |asked: &mut Vec<Apart>, wish| {
            asked.push(wish);
            None::<u32>
        };
        assert_eq!(farthest(&Sites::new(), |wish| none(&mut asked, wish)), None);
        assert_eq!(asked, [Apart::Nothing]);
        asked.clear();
        let others = Sites::from_slice(&[site(Some(1), None)]);
        assert_eq!(farthest(&others, |wish| none(&mut asked, wish)), None);
        assert_eq!(asked, Apart::WISHES);
        assert_eq!(farthest(&others, |wish| (wish == Apart::Nodes).then_some(7)), Some(7));
    }
}
