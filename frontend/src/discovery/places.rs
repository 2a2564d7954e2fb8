//! Registry of cards, nodes and zones that maps names to the dispatcher's numbers.
//!
//! Machines come and go, and names also come from servers. Names without members are therefore removed: the registry
//! has at most twice as many names as members use, plus a few.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use parm_dispatcher::Site;
use parm_protocol::Place;

/// Names that are kept without a member.
const FEW: usize = 64;

/// Cards, nodes and zones of all members.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<[PlaceNames; 3]>);

/// This process, the only one with several instances.
const OWN: u32 = 0;

/// Names with their numbers.
#[derive(Debug, Default)]
struct PlaceNames {
    known: HashMap<String, Weak<NamedPlace>>,
    next: u32,
    /// Number of names at which unused ones are removed.
    most: usize,
}

/// A card, a node or a zone.
#[derive(Debug, PartialEq, Eq)]
struct NamedPlace {
    number: u32,
    name: String,
}

/// Location of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Location {
    /// Whether it is in this process.
    own: bool,
    card: Option<Arc<NamedPlace>>,
    node: Option<Arc<NamedPlace>>,
    zone: Option<Arc<NamedPlace>>,
}

impl Places {
    /// Returns the location for a place, and registers its names.
    pub(super) fn find(&self, place: Place) -> Location {
        let mut all = self.0.lock();
        let [cards, nodes, zones] = &mut *all;
        Location {
            own: false,
            card: place.card.map(|name| cards.find(name)),
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
    /// The location in this process, or outside.
    pub(super) fn within(self, own: bool) -> Self {
        Self { own, ..self }
    }

    /// The location as the dispatcher's numbers.
    pub(super) fn site(&self) -> Site {
        Site {
            process: self.own.then_some(OWN),
            card: self.card.as_ref().map(|place| place.number),
            node: self.node.as_ref().map(|place| place.number),
            zone: self.zone.as_ref().map(|place| place.number),
        }
    }

    /// The location as names.
    pub(crate) fn place(&self) -> Place {
        let name = |place: &Option<Arc<NamedPlace>>| place.as_ref().map(|place| place.name.clone());
        Place { node: name(&self.node), zone: name(&self.zone), card: name(&self.card) }
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
        let card = Place { card: Some("GPU-1".to_owned()), ..node("a") };
        assert_eq!(places.find(card.clone()).place(), card);
        assert_eq!(places.find(card.clone()).site(), places.find(card).site());
        let own = Location::default().within(true).site();
        assert!(
            own.process.is_some() && own != one.site(),
            "instances of this process share a failure domain"
        );
    }

    #[test]
    fn names_without_members_are_removed() {
        let places = Places::default();
        let kept: Vec<_> = (0..100).map(|number| places.find(node(&format!("kept{number}")))).collect();
        for number in 0..10_000 {
            places.find(node(&format!("passing{number}")));
        }
        let known = places.0.lock()[1].known.len();
        assert!(known <= 2 * kept.len() + FEW, "{known} names");
        for (number, location) in kept.iter().enumerate() {
            assert_eq!(&places.find(node(&format!("kept{number}"))), location);
        }
    }
}
