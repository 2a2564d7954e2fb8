//! Reports of neighbours, and their meaning for the servers of this frontend.

use std::collections::BTreeMap;

use parm_dispatch::{Elsewhere, Event, InstanceId};

use super::report::LoadReport;

/// Maximum servers in a neighbour's report: more than any frontend may have.
const MOST: usize = 16_384;

/// Maximum bytes of an address; servers of this frontend have none longer.
const LONGEST: usize = 2000;

/// Reason not to follow a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needless {
    /// It is this frontend itself.
    Own,
    /// It is already followed by another address.
    Twice,
}

/// Known neighbours, and the servers of this frontend.
#[derive(Debug, Default)]
pub(crate) struct Neighbourhood {
    own: String,
    /// Jobs that neighbours hold, by neighbour and by server address.
    others: BTreeMap<String, BTreeMap<String, u16>>,
    ours: BTreeMap<String, Ours>,
}

/// A server of this frontend.
#[derive(Debug)]
struct Ours {
    id: InstanceId,
    /// Its models: homes are distributed among servers with the same models.
    models: String,
    home: bool,
    /// Last state sent to the dispatcher.
    told: Elsewhere,
}

impl Neighbourhood {
    pub(super) fn of(own: String) -> Self {
        Self { own, ..Self::default() }
    }

    /// Name of this frontend.
    pub(super) fn own(&self) -> &str {
        &self.own
    }

    /// Number of neighbours that are followed.
    pub(crate) fn neighbours(&self) -> usize {
        self.others.len()
    }

    /// Adds a server that joined the dispatcher, or replaces one at the same address.
    pub(crate) fn joined(&mut self, address: &str, models: String, id: InstanceId) -> Vec<Event> {
        match self.ours.get_mut(address).filter(|ours| ours.id == id) {
            Some(ours) if ours.models == models => return Vec::new(),
            Some(ours) => ours.models = models,
            None => {
                let ours = Ours { id, models, home: true, told: Elsewhere::default() };
                self.ours.insert(address.to_owned(), ours);
            }
        }
        self.settle_all()
    }

    /// Removes a server.
    pub(crate) fn left(&mut self, id: InstanceId) -> Vec<Event> {
        self.ours.retain(|_, ours| ours.id != id);
        self.settle_all()
    }

    /// Starts to follow a neighbour.
    pub(super) fn begins(&mut self, name: &str) -> Result<(), Needless> {
        if name == self.own {
            return Err(Needless::Own);
        }
        if self.others.contains_key(name) {
            return Err(Needless::Twice);
        }
        self.others.insert(name.to_owned(), BTreeMap::new());
        Ok(())
    }

    /// Takes in a line of a neighbour.
    pub(super) fn heard(&mut self, line: &LoadReport, is_first: bool) -> Vec<Event> {
        let Some(holds) = self.others.get_mut(&line.frontend) else { return Vec::new() };
        for (address, jobs) in &line.holds {
            if *jobs == 0 {
                holds.remove(address);
            } else if address.len() <= LONGEST && (holds.len() < MOST || holds.contains_key(address)) {
                holds.insert(address.clone(), *jobs);
            }
        }
        if is_first { self.settle_all() } else { self.settle(line.holds.keys()) }
    }

    /// Removes a neighbour.
    pub(super) fn lost(&mut self, name: &str) -> Vec<Event> {
        self.others.remove(name);
        self.settle_all()
    }

    /// Recomputes the homes of all servers.
    fn settle_all(&mut self) -> Vec<Event> {
        // Frontends with the same view of frontends and servers compute the same homes.
        let names = self.others.len() + 1;
        let own = self.others.keys().filter(|name| **name < self.own).count();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for Ours { models, home, .. } in self.ours.values_mut() {
            let place = places.entry(models).or_default();
            *home = *place % names == own;
            *place += 1;
        }
        let others = &self.others;
        self.ours.iter_mut().filter_map(|(address, ours)| ours.settle(others, address)).collect()
    }

    fn settle<'a>(&mut self, addresses: impl Iterator<Item = &'a String>) -> Vec<Event> {
        let (ours, others) = (&mut self.ours, &self.others);
        addresses.filter_map(|address| ours.get_mut(address)?.settle(others, address)).collect()
    }
}

impl Ours {
    /// Returns the event for the dispatcher if its state is stale.
    fn settle(&mut self, others: &BTreeMap<String, BTreeMap<String, u16>>, address: &str) -> Option<Event> {
        let held = others.values().filter_map(|holds| holds.get(address));
        let jobs = held.fold(0, |sum: u16, jobs| sum.saturating_add(*jobs));
        let elsewhere = Elsewhere { jobs, home: self.home };
        let is_news = std::mem::replace(&mut self.told, elsewhere) != elsewhere;
        is_news.then_some(Event::HeldElsewhere(self.id, elsewhere))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(frontend: &str, holds: &[(&str, u16)]) -> LoadReport {
        let holds = holds.iter().map(|(address, jobs)| ((*address).to_owned(), *jobs)).collect();
        LoadReport { frontend: frontend.into(), holds }
    }

    fn told(id: u32, jobs: u16, home: bool) -> Event {
        Event::HeldElsewhere(InstanceId(id), Elsewhere { jobs, home })
    }

    /// Three servers, and one neighbour.
    fn with_one_neighbour() -> Neighbourhood {
        let mut known = Neighbourhood::of("m".into());
        for (address, id) in [("a", 1), ("b", 2), ("c", 3)] {
            assert_eq!(
                known.joined(address, "m".into(), InstanceId(id)),
                [],
                "without neighbours every server is home"
            );
        }
        known.begins("z").unwrap();
        assert_eq!(
            known.heard(&line("z", &[("a", 2), ("x", 1)]), true),
            [told(1, 2, true), told(2, 0, false)]
        );
        known
    }

    #[test]
    fn jobs_of_neighbours_are_summed_and_removed_with_them() {
        let mut known = with_one_neighbour();
        known.begins("b").unwrap();
        let all = known.heard(&line("b", &[("a", 1), ("c", 1)]), true);
        assert_eq!(all, [told(1, 3, false), told(2, 0, true), told(3, 1, false)]);
        assert_eq!(known.heard(&line("b", &[("a", 1), ("c", 0)]), false), [told(3, 0, false)]);
        assert_eq!(known.lost("z"), [told(1, 1, false)], "b sorts before m: a and c are its homes");
        assert_eq!(known.lost("b"), [told(1, 0, true), told(3, 0, true)]);
        assert_eq!(known.neighbours(), 0);
    }

    #[test]
    fn later_server_counts_earlier_reports() {
        let mut known = with_one_neighbour();
        assert_eq!(known.joined("x", "m".into(), InstanceId(4)), [told(4, 1, false)]);
        assert_eq!(known.joined("x", "m".into(), InstanceId(4)), [], "same server with other models");
        assert_eq!(
            known.joined("x", "m".into(), InstanceId(5)),
            [told(5, 1, false)],
            "another server at the same address"
        );
        assert_eq!(known.left(InstanceId(1)), [told(2, 0, true), told(3, 0, false), told(5, 1, true)]);
    }

    #[test]
    fn homes_are_distributed_among_servers_of_same_models() {
        let mut known = Neighbourhood::of("m".into());
        for (address, id, models) in [("a", 1, "A"), ("b", 2, "B"), ("c", 3, "A"), ("d", 4, "B")] {
            known.joined(address, models.into(), InstanceId(id));
        }
        known.begins("z").unwrap();
        assert_eq!(known.heard(&line("z", &[]), true), [told(3, 0, false), told(4, 0, false)]);
        assert_eq!(known.joined("d", "A".into(), InstanceId(4)), [told(4, 0, true)]);
    }

    #[test]
    fn own_and_duplicate_neighbours_are_not_followed() {
        let mut known = with_one_neighbour();
        assert_eq!(known.begins("m"), Err(Needless::Own));
        assert_eq!(known.begins("z"), Err(Needless::Twice));
        assert_eq!(known.heard(&line("never seen", &[("a", 9)]), false), []);
    }

    #[test]
    fn memory_per_neighbour_is_bounded() {
        let mut known = with_one_neighbour();
        for at in 0..2 * MOST {
            known.heard(&line("z", &[(&format!("http://{at}"), 1)]), false);
        }
        assert_eq!(known.others["z"].len(), MOST);
        known.heard(&line("z", &[(&"x".repeat(1 << 20), 1)]), false);
        assert!(known.others["z"].keys().all(|address| address.len() <= LONGEST));
        assert_eq!(known.heard(&line("z", &[("a", 0)]), false), [told(1, 0, true)]);
    }
}
