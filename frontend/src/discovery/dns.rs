//! Follows a name that stands for several servers, such as that of a headless service.
//!
//! It is asked for at an interval, whatever times to live the answers carry: an interval is what an operator can bound. An
//! answer without servers changes nothing, and neither does a failure: name servers fail as well, health checks take out
//! what is dead, and losing every instance to somebody's restart would be the worst of all guesses. A server is removed once
//! two answers in a row lack it: answers hold a part of the servers, or come from a name server that lags behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parm_protocol::Absence;

use super::fleet::Fleet;
use super::member::Source;
use super::name::Name;
use crate::error::Error;

/// Follows a name until the fleet is gone.
pub(super) async fn watch(fleet: Weak<Fleet>, name: Name, every: Duration) {
    let (mut ours, mut absence) = (BTreeMap::new(), Absence::default());
    let mut last = None;
    loop {
        let Some(connect) = fleet.upgrade().map(|fleet| fleet.connect.clone()) else { return };
        let answer = tokio::time::timeout(every, connect.resolve(&name)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {every:?}")));
        let Some(fleet) = fleet.upgrade() else { return };
        let wanted = answer.and_then(|servers| match servers.is_empty() {
            true => Err("it stands for no server now".to_owned()),
            false => Ok(servers.iter().map(|server| name.url(server)).collect::<BTreeSet<_>>()),
        });
        if let Ok(wanted) = &wanted {
            let gone = absence.look(ours.keys(), wanted.len(), |url| wanted.contains(url));
            remove(&fleet, &mut ours, &gone);
        }
        if last.as_ref() != Some(&wanted) {
            match &wanted {
                Ok(wanted) => add(&fleet, &mut ours, wanted),
                Err(reason) => {
                    tracing::warn!(%name, %reason, "cannot resolve a worker's name: nothing changes")
                }
            }
            last = Some(wanted);
        }
        drop(fleet);
        tokio::time::sleep(every).await;
    }
}

/// Removes members that this name brought and does not stand for any more.
fn remove(fleet: &Arc<Fleet>, ours: &mut BTreeMap<String, u32>, gone: &BTreeSet<String>) {
    for number in gone.iter().filter_map(|url| ours.remove(url)) {
        // Gone meanwhile is gone too.
        let _ = fleet.remove(number);
    }
}

/// Adds the servers that this name stands for and that are new.
fn add(fleet: &Arc<Fleet>, ours: &mut BTreeMap<String, u32>, wanted: &BTreeSet<String>) {
    for url in wanted {
        if ours.contains_key(url) {
            continue;
        }
        match fleet.add(url, Source::Dns) {
            Ok(member) => {
                ours.insert(url.clone(), member.number);
            }
            // Another source named it too.
            Err(Error::DuplicateInstance { .. }) => {}
            Err(error) => tracing::warn!(%error, "skipped a server that a name stands for"),
        }
    }
}
