//! Follows a DNS name with several servers, such as a headless service.
//!
//! The name is resolved at a fixed interval, regardless of time to live, because an operator can bound an interval. A
//! failure or an answer without servers changes nothing: name servers fail too, health checks find dead instances, and
//! losing all instances to a restart of a name server would be the worst outcome. A server is removed once two answers
//! in a row lack it, as an answer may be partial or come from a stale name server.

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
        let answer = answer.unwrap_or_else(|_| Err(format!("name resolution timed out after {every:?}")));
        let Some(fleet) = fleet.upgrade() else { return };
        let wanted = answer.and_then(|servers| match servers.is_empty() {
            true => Err("it has no servers now".to_owned()),
            false => Ok(servers.iter().map(|server| name.url(server)).collect::<BTreeSet<_>>()),
        });
        let is_news = last.as_ref() != Some(&wanted);
        match &wanted {
            Ok(wanted) => {
                let gone = absence.look(ours.keys(), wanted.len(), |url| wanted.contains(url));
                remove(&fleet, &mut ours, &gone);
                // Also without news: another source may have removed a server that both listed.
                add(&fleet, &mut ours, wanted, is_news);
            }
            Err(reason) if is_news => {
                tracing::warn!(code = %parm_protocol::StableCode::NameUnresolved, %name, %reason, "cannot resolve a worker's name: keeping known workers")
            }
            Err(_) => {}
        }
        last = Some(wanted);
        drop(fleet);
        tokio::time::sleep(every).await;
    }
}

/// Removes members of this name that are not in the answer.
fn remove(fleet: &Arc<Fleet>, ours: &mut BTreeMap<String, u32>, gone: &BTreeSet<String>) {
    for number in gone.iter().filter_map(|url| ours.remove(url)) {
        // It may have been removed meanwhile.
        let _ = fleet.remove(number);
    }
}

/// Adds new servers of this name. An error is reported with the first answer that has its server.
fn add(fleet: &Arc<Fleet>, ours: &mut BTreeMap<String, u32>, wanted: &BTreeSet<String>, is_news: bool) {
    for url in wanted {
        if ours.contains_key(url) {
            continue;
        }
        match fleet.add(url, Source::Dns) {
            Ok(member) => {
                ours.insert(url.clone(), member.number);
            }
            // Another source listed it too.
            Err(Error::DuplicateInstance { .. }) => {}
            Err(error) if is_news => tracing::warn!(%error, "skipped a server of a name"),
            Err(_) => {}
        }
    }
}
