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
pub(super) struct Places(Mutex<(PlaceNames, PlaceNames)>);

/// Names with their numbers.
#[derive(Debug, Default)]
struct PlaceNames {
    known: HashMap<String, Weak<NamedPlace>>,
    next: u32,
    /// Number of names at which unused ones are removed.
    most: usize,
}

/// A node or a zone.
#[derive(Debug, PartialEq, Eq)]
struct NamedPlace {
    number: u32,
    name: String,
}

/// Location of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Location {
    node: Option<Arc<NamedPlace>>,
    zone: Option<Arc<NamedPlace>>,
}

impl Places {
    /// Returns the location for a place, and registers its names.
    pub(super) fn find(&self, place: Place) -> Location {
        let mut both = self.0.lock();
        let (nodes, zones) = &mut *both;
        Location {
            node: place.node.map(|name| nodes.find(name)),
            zone: place.zone.map(|name| zones.find(name)),
        }
    }
}

impl PlaceNames {
    fn find(&mut self, name: String) -> Arc<NamedPlace> {
        if let Some(place) = self.known.get(&name).and_then(Weak::upgrade) {
            return place;
        }
        if self.known.len() >= self.most.max(FEW) {
            self.known.retain(|_, place| place.strong_count() > 0);
            self.most = self.known.len() * 2;
        }
        let place = Arc::new(NamedPlace { number: self.next, name: name.clone() });
        self.next = self.next.wrapping_add(1);
        self.known.insert(name, Arc::downgrade(&place));
        place
    }
}

impl Location {
    /// The location as the dispatcher's numbers.
    pub(super) fn site(&self) -> Site {
        Site {
            node: self.node.as_ref().map(|place| NodeId(place.number)),
            zone: self.zone.as_ref().map(|place| ZoneId(place.number)),
        }
    }

    /// The location as names.
    pub(crate) fn place(&self) -> Place {
        let name = |place: &Option<Arc<NamedPlace>>| place.as_ref().map(|place| place.name.clone());
        Place { node: name(&self.node), zone: name(&self.zone), ..Place::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Place {
        Place { node: Some(name.to_owned()), ..Place::default() }
    }

    #[test]
    fn members_on_one_node_share_its_number() {
        let places = Places::default();
        let (one, other) = (places.find(node("a")), places.find(node("b")));
        assert_eq!(places.find(node("a")).site(), one.site());
        assert_ne!(one.site(), other.site());
        assert_eq!(one.place(), node("a"));
        let zone = Place { zone: Some("a".to_owned()), ..Place::default() };
        assert_eq!(places.find(zone.clone()).place(), zone, "a zone may have the same name as a node");
        assert_eq!(places.find(Place::default()).site(), Site::default());
    }

    #[test]
    fn names_without_members_are_removed() {
        let places = Places::default();
        let kept: Vec<_> = (0..100).map(|number| places.find(node(&format!("kept{number}")))).collect();
        for number in 0..10_000 {
            places.find(node(&format!("passing{number}")));
        }
        let known = places.0.lock().0.known.len();
        assert!(known <= 2 * kept.len() + FEW, "{known} names");
        for (number, location) in kept.iter().enumerate() {
            assert_eq!(&places.find(node(&format!("kept{number}"))), location);
        }
    }
}
