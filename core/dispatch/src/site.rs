//! Where instances stand, and how far from one another: what stands together becomes slow together.
//!
//! A job that is to save a query goes to another zone than those that run it already, else to another node, else wherever
//! there is room: late is better than never. What is not known is taken to be apart, so that where nothing is known all is
//! as it would be without sites. A zone counts for no more than a node does: queries go to every zone anyway.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::extra::Extra;
use super::query::{Aid, Query};
use super::{NodeId, Role, ZoneId};

/// Where an instance stands, as far as discovery knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The machine.
    pub node: Option<NodeId>,
    /// The part of the data centre, or of the cloud, that fails together.
    pub zone: Option<ZoneId>,
}

/// How far apart two sites are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Apart {
    Nothing,
    Nodes,
    Zones,
}

impl Apart {
    /// From what is wished for most to what will do.
    pub(super) const WISHES: [Self; 3] = [Self::Zones, Self::Nodes, Self::Nothing];
}

/// The sites of instances that a job should stay away from.
pub(super) type Sites = SmallVec<[Site; 4]>;

impl Site {
    fn is_known(self) -> bool {
        self.node.is_some() || self.zone.is_some()
    }

    fn apart(self, other: Self) -> Apart {
        let same = |one: Option<u32>, other: Option<u32>| one.is_some() && one == other;
        if same(self.node.map(|node| node.0), other.node.map(|node| node.0)) {
            Apart::Nothing
        } else if same(self.zone.map(|zone| zone.0), other.zone.map(|zone| zone.0)) {
            Apart::Nodes
        } else {
            Apart::Zones
        }
    }

    /// How far it is from the nearest of others.
    pub(super) fn apart_from_all(self, others: &Sites) -> Apart {
        others.iter().map(|other| self.apart(*other)).min().unwrap_or(Apart::Zones)
    }
}

/// Chooses by how far apart it is: asks for the farthest first, and only once where no site is known.
pub(super) fn farthest<T>(others: &Sites, mut choose: impl FnMut(Apart) -> Option<T>) -> Option<T> {
    if others.is_empty() {
        return choose(Apart::Nothing);
    }
    Apart::WISHES.into_iter().find_map(choose)
}

impl Dispatcher {
    /// Where the queries of an extra job are held or have failed, as far as is known.
    pub(super) fn sites_of(&self, extra: &Extra) -> Sites {
        let mut sites = Sites::new();
        match extra.role {
            Role::Parity(group, _) => {
                sites.extend(self.groups[Key::from(group)].places.iter().map(|(_, site)| *site));
            }
            Role::Deployed | Role::Copy | Role::Backup | Role::StandIn(_) => {
                extra.rows.iter().for_each(|query| self.add_sites(*query, &mut sites));
                let failed = extra.avoid.and_then(|(instance, _)| self.instances.get(instance));
                sites.extend(failed.map(|instance| instance.site));
            }
        }
        sites.retain(|site| site.is_known());
        sites
    }

    /// Where a query is held, as far as is known.
    pub(super) fn sites_of_query(&self, query: Key<Query>) -> Sites {
        let mut sites = Sites::new();
        self.add_sites(query, &mut sites);
        sites.retain(|site| site.is_known());
        sites
    }

    fn add_sites(&self, query: Key<Query>, sites: &mut Sites) {
        let query = &self.queries[query];
        let aid = if let Aid::Runs(job) = query.aid { Some(job) } else { None };
        let jobs = query.jobs.iter().copied().chain(aid).filter_map(|job| self.jobs.get(job));
        let instances = jobs.filter_map(|job| self.instances.get(job.instance));
        sites.extend(instances.map(|instance| instance.site));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(node: Option<u32>, zone: Option<u32>) -> Site {
        Site { node: node.map(NodeId), zone: zone.map(ZoneId) }
    }

    #[test]
    fn what_is_not_known_is_apart_and_a_node_is_nearer_than_a_zone() {
        let here = site(Some(1), Some(1));
        for (other, expected) in [
            (here, Apart::Nothing),
            (site(Some(1), None), Apart::Nothing),
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
        assert_eq!(here.apart_from_all(&others), Apart::Nodes, "the nearest counts");
        assert_eq!(Site::default().apart_from_all(&Sites::new()), Apart::Zones);
    }

    #[test]
    fn the_farthest_is_asked_for_first_and_nothing_known_is_asked_once() {
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
