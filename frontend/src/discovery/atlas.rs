//! The nodes and zones that members stand on, by name: the dispatcher knows them by number.
//!
//! Machines come and go while a frontend runs, and names come from servers too. So what no member stands on any more is
//! forgotten: there are never more names than twice as many as members have, and a few.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use parm_dispatch::{NodeId, Site, ZoneId};
use parm_protocol::Place;

/// Names that are kept whether or not somebody stands there.
const FEW: usize = 64;

/// Every node and zone that somebody stands on.
#[derive(Debug, Default)]
pub(super) struct Atlas(Mutex<(Gazetteer, Gazetteer)>);

/// Names with their numbers.
#[derive(Debug, Default)]
struct Gazetteer {
    known: HashMap<String, Weak<Spot>>,
    next: u32,
    /// So many names are known when those that nobody stands on are forgotten.
    most: usize,
}

/// A node or a zone.
#[derive(Debug, PartialEq, Eq)]
struct Spot {
    number: u32,
    name: String,
}

/// Where a member stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stand {
    node: Option<Arc<Spot>>,
    zone: Option<Arc<Spot>>,
}

impl Atlas {
    /// Where somebody at a place stands.
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
    /// To the dispatcher.
    pub(super) fn site(&self) -> Site {
        Site {
            node: self.node.as_ref().map(|spot| NodeId(spot.number)),
            zone: self.zone.as_ref().map(|spot| ZoneId(spot.number)),
        }
    }

    /// To people.
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
    fn who_stands_on_one_node_has_one_number_for_it() {
        let atlas = Atlas::default();
        let (one, other) = (atlas.find(node("a")), atlas.find(node("b")));
        assert_eq!(atlas.find(node("a")).site(), one.site());
        assert_ne!(one.site(), other.site());
        assert_eq!(one.place(), node("a"));
        let zone = Place { node: None, zone: Some("a".to_owned()) };
        assert_eq!(atlas.find(zone.clone()).place(), zone, "a zone may have a node's name");
        assert_eq!(atlas.find(Place::default()).site(), Site::default());
    }

    #[test]
    fn names_that_nobody_stands_on_are_forgotten() {
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
