//! Members that a source lists: a DNS name, a file or a Service of Kubernetes.
//!
//! A source is listed at an interval. A failure or an empty list changes nothing: name servers and API servers fail too, lists
//! are mistyped, health checks find dead members, and losing all members to a mistake would be the worst outcome. A member
//! is removed once two lists in a row lack it, as a list may be partial or stale.
//!
//! A source may say that a server terminates. It then receives no more work and finishes its jobs, because termination cannot
//! be undone. If all servers terminate, those that still serve stay in use, as in kube-proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parm_protocol::{Absence, Place, StableCode};

use super::fleet::Fleet;
use super::member::Source;
use crate::error::Error;

/// A source of servers. Its text names it in the log.
pub(super) trait Listing: Display + Send {
    const SOURCE: Source;
    /// The stable code of its problems.
    const CODE: StableCode;

    /// All servers that it has now, or why they are unknown.
    fn list(&mut self) -> impl Future<Output = Result<ServerList, String>> + Send;
}

/// A list of servers.
#[derive(Debug, Default)]
pub(super) struct ServerList {
    pub(super) servers: BTreeMap<String, Found>,
    /// Why some servers are unusable.
    pub(super) problem: Option<String>,
}

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

/// Follows a source until the fleet is gone.
pub(super) async fn follow<L: Listing>(fleet: Weak<Fleet>, mut source: L, every: Duration) {
    let (mut members, mut told) = (Membership::of(L::SOURCE), None);
    while fleet.strong_count() > 0 {
        let listed = source.list().await;
        let Some(fleet) = fleet.upgrade() else { return };
        let problem = match listed {
            Ok(listed) => members.become_those(&fleet, listed),
            Err(reason) => Some(reason),
        };
        if problem != told
            && let Some(problem) = &problem
        {
            tracing::warn!(code = %L::CODE, %source, %problem, "cannot list all workers of a source: keeping known workers");
        }
        told = problem;
        drop(fleet);
        tokio::time::sleep(every).await;
    }
}

/// The members of a source, by address.
#[derive(Debug)]
struct Membership {
    source: Source,
    ours: BTreeMap<String, Own>,
    /// Members that the last list missed.
    absence: Absence<String>,
}

/// Last known state of a member.
#[derive(Debug)]
struct Own {
    number: u32,
    serving: bool,
    terminating: bool,
}

impl Membership {
    fn of(source: Source) -> Self {
        Self { source, ours: BTreeMap::new(), absence: Absence::default() }
    }

    /// Updates the members to a list; returns what is wrong with it. New servers that do not serve yet replace no member.
    fn become_those(&mut self, fleet: &Arc<Fleet>, listed: ServerList) -> Option<String> {
        let ServerList { servers, problem } = listed;
        let missed: BTreeSet<String> =
            self.absence.look(self.ours.keys(), servers.len(), |url| servers.contains_key(url));
        let is_connected =
            |own: &Own| fleet.member(own.number).is_ok_and(|member| member.view().instance.is_some());
        let serves = |url: &String, one: &Found| one.serving || self.ours.get(url).is_some_and(is_connected);
        let stays = servers.iter().any(|(url, one)| !one.terminating && serves(url, one));
        let wanted = |one: &Found| !one.terminating || (!stays && one.serving);
        let mut gone = Vec::new();
        self.ours.retain(|url, own| {
            let is_kept = match servers.get(url) {
                Some(one) => {
                    own.terminating = one.terminating;
                    wanted(one)
                }
                None => !own.terminating && !missed.contains(url),
            };
            gone.extend((!is_kept).then_some(own.number));
            is_kept
        });
        let mut refused = Vec::new();
        for (url, one) in servers.iter().filter(|(_, one)| wanted(one)) {
            match self.ours.get_mut(url) {
                Some(own) => own.is_now(fleet, one),
                None => match fleet.add(url, self.source, one.place.clone()) {
                    Ok(member) => {
                        let (number, serving, terminating) = (member.number, one.serving, one.terminating);
                        self.ours.insert(url.clone(), Own { number, serving, terminating });
                    }
                    // Another source listed it first.
                    Err(Error::DuplicateInstance { .. }) => {}
                    Err(error) => refused.push(error),
                },
            }
        }
        // After the new ones: the last of the former members stay until those have joined.
        for number in gone {
            // It may have been removed meanwhile.
            let _ = fleet.remove(number);
        }
        match refused.first() {
            Some(first) => {
                Some(format!("{} servers are left out, the first because of: {first}", refused.len()))
            }
            None if servers.is_empty() => problem.or_else(|| Some("it has no servers now".to_owned())),
            None => problem,
        }
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
