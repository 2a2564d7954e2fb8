//! Members that one source lists: a DNS name, a file or a Service of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parm_protocol::Place;

use super::fleet::Fleet;
use super::member::Source;
use crate::error::Error;

/// A server that a source lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) place: Place,
    /// Its source would send it requests.
    pub(super) serving: bool,
    pub(super) terminating: bool,
}

impl Found {
    /// One of a source that says no more.
    pub(super) fn at(place: Place) -> Self {
        Self { place, serving: true, terminating: false }
    }
}

/// The members of a source, by address.
#[derive(Debug)]
pub(super) struct Membership {
    source: Source,
    ours: BTreeMap<String, Own>,
}

/// Last known state of a member.
#[derive(Debug)]
struct Own {
    number: u32,
    serving: bool,
    terminating: bool,
}

/// Result of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Footing {
    /// Members that stay although the source lists none.
    pub(super) kept: usize,
    /// Servers that could not be added, and the reason for the first.
    pub(super) left_out: usize,
    pub(super) reason: Option<String>,
    /// Servers that another source listed first.
    pub(super) of_others: usize,
}

impl Footing {
    /// Whether a server could be added later without a change of the source: another one may drop it, or the fleet may have room.
    pub(super) fn is_open(&self) -> bool {
        self.of_others + self.left_out > 0
    }
}

impl Membership {
    pub(super) fn of(source: Source) -> Self {
        Self { source, ours: BTreeMap::new() }
    }

    /// Addresses of the members.
    pub(super) fn urls(&self) -> impl Iterator<Item = &String> {
        self.ours.keys()
    }

    /// Removes members that lists no longer have.
    pub(super) fn remove(&mut self, fleet: &Fleet, gone: &BTreeSet<String>) {
        for own in gone.iter().filter_map(|url| self.ours.remove(url)) {
            // It may have been removed meanwhile.
            let _ = fleet.remove(own.number);
        }
    }

    /// Updates the members. A terminating or missing server drains and is removed. A source without servers
    /// changes nothing, except for members seen to terminate: lists are mistyped, and health checks find dead
    /// members. Members that only the last list missed stay until the next list. New pods that do not serve yet replace
    /// none.
    pub(super) fn follow(
        &mut self,
        fleet: &Arc<Fleet>,
        found: &BTreeMap<String, Found>,
        is_missed: impl Fn(&String) -> bool,
    ) -> Footing {
        let is_connected =
            |own: &Own| fleet.member(own.number).is_ok_and(|member| member.view().instance.is_some());
        let serves = |url: &String, one: &Found| one.serving || self.ours.get(url).is_some_and(is_connected);
        let stays = found.iter().any(|(url, one)| !one.terminating && serves(url, one));
        // If none but terminating endpoints serve, those stay in use, as in kube-proxy.
        let wanted = |one: &Found| !one.terminating || (!stays && one.serving);
        let mut footing = Footing::default();
        let mut gone = Vec::new();
        self.ours.retain(|url, own| {
            let one = found.get(url);
            if one.is_none() && is_missed(url) && !own.terminating {
                return true;
            }
            own.terminating = one.map_or(own.terminating, |one| one.terminating);
            let goes = !one.is_some_and(wanted) && (stays || own.terminating);
            if goes {
                gone.push(own.number);
            }
            footing.kept += usize::from(!goes && one.is_none());
            !goes
        });
        for (url, one) in found.iter().filter(|(_, one)| wanted(one)) {
            match self.ours.get_mut(url) {
                Some(own) => own.is_now(fleet, one),
                None => match fleet.add(url, self.source, one.place.clone()) {
                    Ok(member) => {
                        let (number, serving, terminating) = (member.number, one.serving, one.terminating);
                        self.ours.insert(url.clone(), Own { number, serving, terminating });
                    }
                    Err(Error::DuplicateInstance { .. }) => footing.of_others += 1,
                    Err(error) => {
                        footing.left_out += 1;
                        footing.reason.get_or_insert_with(|| error.to_string());
                    }
                },
            }
        }
        // After the new ones: the last of the former members stay until those have joined.
        for number in gone {
            // It may have been removed meanwhile.
            let _ = fleet.remove(number);
        }
        footing
    }
}

impl Own {
    fn is_now(&mut self, fleet: &Fleet, one: &Found) {
        // An operator may have removed it on purpose.
        let Ok(member) = fleet.member(self.number) else { return };
        member.tell_place(one.place.clone());
        if one.serving && !self.serving {
            // It became ready: connect now rather than at the next try.
            member.refresh.notify_one();
        }
        self.serving = one.serving;
    }
}
