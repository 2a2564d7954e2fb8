//! Registry of nodes and zones that maps names to the dispatcher's numbers.
//!
//! Machines come and go, and names also come from servers. Names without members are therefore removed: the registry
//! has at most twice as many names as members use, plus a few.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use parm_dispatch::{NodeId, Site, ZoneId};
use parm_protocol::Place;

/// Names that are kept without a member.
const FEW: usize = 64;

/// Nodes and zones of all members.
#[derive(Debug, Default)]
pub(super) struct Atlas(Mutex<(Gazetteer, Gazetteer)>);

/// Names with their numbers.
#[derive(Debug, Default)]
struct Gazetteer {
    known: HashMap<String, Weak<Spot>>,
    next: u32,
    /// Number of names at which unused ones are removed.
    most: usize,
}

/// A node or a zone.
#[derive(Debug, PartialEq, Eq)]
struct Spot {
    number: u32,
    name: String,
}

/// Location of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stand {
    node: Option<Arc<Spot>>,
    zone: Option<Arc<Spot>>,
}

impl Atlas {
    /// Returns the location for a place, and registers its names.
    pub(super) fn find(&self, place: Place) -> Stand {
        let mut both = self.0.lock();
        let (nodes, zones) = &mut *both;
        Stand { node: place.node.map(|name| nodes.find(name)), zone: place.zone.map(|name| zones.find(name)) }
    }
}

impl Gazetteer {
    fn find(&mut self, name: String) -> Arc<Spot> {
        if let Some(spot) = self.known.get(&name).and_then(Weak::upgrade) {
            return spot;
        }
        if self.known.len() >= self.most.max(FEW) {
            self.known.retain(|_, spot| spot.strong_count() > 0);
            self.most = self.known.len() * 2;
        }
        let spot = Arc::new(Spot { number: self.next, name: name.clone() });
        self.next = self.next.wrapping_add(1);
        self.known.insert(name, Arc::downgrade(&spot));
        spot
    }
}

impl Stand {
    /// The location as the dispatcher's numbers.
    pub(super) fn site(&self) -> Site {
        Site {
            node: self.node.as_ref().map(|spot| NodeId(spot.number)),
            zone: self.zone.as_ref().map(|spot| ZoneId(spot.number)),
        }
    }

    /// The location as names.
    pub(crate) fn place(&self) -> Place {
        let name = |spot: &Option<Arc<Spot>>| spot.as_ref().map(|spot| spot.name.clone());
        Place { node: name(&self.node), zone: name(&self.zone) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Place {
        Place { node: Some(name.to_owned()), zone: None }
    }

    #[test]
    fn members_on_one_node_share_its_number() {
        let atlas = Atlas::default();
        let (one, other) = (atlas.find(node("a")), atlas.find(node("b")));
        assert_eq!(atlas.find(node("a")).site(), one.site());
        assert_ne!(one.site(), other.site());
        assert_eq!(one.place(), node("a"));
        let zone = Place { node: None, zone: Some("a".to_owned()) };
        assert_eq!(atlas.find(zone.clone()).place(), zone, "a zone may have the same name as a node");
        assert_eq!(atlas.find(Place::default()).site(), Site::default());
    }

    #[test]
    fn names_without_members_are_removed() {
        let atlas = Atlas::default();
        let kept: Vec<_> = (0..100).map(|number| atlas.find(node(&format!("kept{number}")))).collect();
        for number in 0..10_000 {
            atlas.find(node(&format!("passing{number}")));
        }
        let known = atlas.0.lock().0.known.len();
        assert!(known <= 2 * kept.len() + FEW, "{known} names");
        for (number, stand) in kept.iter().enumerate() {
            assert_eq!(&atlas.find(node(&format!("kept{number}"))), stand);
        }
    }
}
