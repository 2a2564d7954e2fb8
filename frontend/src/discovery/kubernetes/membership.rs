//! Makes the members that a Service brought what it stands for now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::census::Found;
use crate::discovery::fleet::Fleet;
use crate::discovery::member::Source;
use crate::error::Error;

/// The members that came from one Service, by address.
#[derive(Debug, Default)]
pub(super) struct Membership(BTreeMap<String, Own>);

/// What was known of a member last.
#[derive(Debug)]
struct Own {
    number: u32,
    serving: bool,
    terminating: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Footing {
    /// Members that stay though the Service does not name them, as it names nobody.
    pub(super) kept: usize,
    /// Endpoints that could not be added, and why the first could not.
    pub(super) left_out: usize,
    pub(super) reason: Option<String>,
}

impl Membership {
    /// The members' addresses.
    pub(super) fn urls(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Removes members that lists do not name any more.
    pub(super) fn remove(&mut self, fleet: &Fleet, gone: &BTreeSet<String>) {
        for own in gone.iter().filter_map(|url| self.0.remove(url)) {
            // Gone meanwhile is gone too.
            let _ = fleet.remove(own.number);
        }
    }

    /// Follows what was found. Who ends, or is not named any more, drains and goes. A Service that names nobody changes
    /// nothing, but for those that were seen to end: selectors are mistyped, and whoever is dead our own checks find. Members that a
    /// list has just missed stay until the next list.
    pub(super) fn follow(
        &mut self,
        fleet: &Arc<Fleet>,
        found: &BTreeMap<String, Found>,
        is_missed: impl Fn(&String) -> bool,
    ) -> Footing {
        let stays = found.values().any(|one| !one.terminating);
        // Where all of them end, those that still serve are better than nobody.
        let wanted = |one: &Found| if stays { !one.terminating } else { one.serving };
        let mut footing = Footing::default();
        self.0.retain(|url, own| {
            let one = found.get(url);
            if one.is_none() && is_missed(url) && !own.terminating {
                return true;
            }
            own.terminating = one.map_or(own.terminating, |one| one.terminating);
            let goes = !one.is_some_and(wanted) && (stays || own.terminating);
            if goes {
                // Gone meanwhile is gone too.
                let _ = fleet.remove(own.number);
            }
            footing.kept += usize::from(!goes && one.is_none());
            !goes
        });
        for (url, one) in found.iter().filter(|(_, one)| wanted(one)) {
            match self.0.get_mut(url) {
                Some(own) => own.is_now(fleet, one),
                None => match fleet.add_at(url, Source::Kubernetes, one.place.clone()) {
                    Ok(member) => {
                        let (number, serving, terminating) = (member.number, one.serving, one.terminating);
                        self.0.insert(url.clone(), Own { number, serving, terminating });
                    }
                    // Another source named it too.
                    Err(Error::DuplicateInstance { .. }) => {}
                    Err(error) => {
                        footing.left_out += 1;
                        footing.reason.get_or_insert_with(|| error.to_string());
                    }
                },
            }
        }
        footing
    }
}

impl Own {
    fn is_now(&mut self, fleet: &Fleet, one: &Found) {
        // Whoever removed it by hand meant it.
        let Ok(member) = fleet.member(self.number) else { return };
        member.tell_place(one.place.clone());
        if one.serving && !self.serving {
            // It became ready: no need to wait for the next try.
            member.refresh.notify_one();
        }
        self.serving = one.serving;
    }
}
