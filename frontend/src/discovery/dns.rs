//! Follows a DNS name with several servers, such as a headless service.
//!
//! The name is resolved at a fixed interval, regardless of time to live, because an operator can bound an interval. A
//! failure or an answer without servers changes nothing: name servers fail too, health checks find dead instances, and
//! losing all instances to a restart of a name server would be the worst outcome. A server is removed once two answers
//! in a row lack it, as an answer may be partial or come from a stale name server.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use parm_protocol::{Absence, Place};

use super::fleet::Fleet;
use super::member::Source;
use super::membership::{Footing, Found, Membership};

/// Follows a name until the fleet is gone.
pub(super) async fn watch(fleet: Weak<Fleet>, name: Name, every: Duration) {
    let (mut members, mut absence) = (Membership::of(Source::Dns), Absence::default());
    let (mut last, mut footing) = (None, Footing::default());
    loop {
        let Some(connect) = fleet.upgrade().map(|fleet| fleet.connect.clone()) else { return };
        let answer = tokio::time::timeout(every, connect.resolve(&name)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("name resolution timed out after {every:?}")));
        let Some(fleet) = fleet.upgrade() else { return };
        let found = |server: &String| (name.url(server), Found::at(Place::default()));
        let wanted = answer.and_then(|servers| match servers.is_empty() {
            true => Err("it has no servers now".to_owned()),
            false => Ok(servers.iter().map(found).collect::<BTreeMap<_, _>>()),
        });
        match &wanted {
            Ok(wanted) => {
                let gone = absence.look(members.urls(), wanted.len(), |url| wanted.contains_key(url));
                members.remove(&fleet, &gone);
                // Also without news: another source may have removed a server that both listed.
                let now = members.follow(&fleet, wanted, |url| absence.is_missed(url));
                if now != footing
                    && let Some(reason) = &now.reason
                {
                    tracing::warn!(%name, servers = now.left_out, %reason, "skipped servers of a name");
                }
                footing = now;
            }
            Err(reason) if last.as_ref() != Some(&wanted) => {
                tracing::warn!(code = %parm_protocol::StableCode::NameUnresolved, %name, %reason, "cannot resolve a worker's name: keeping known workers")
            }
            Err(_) => {}
        }
        last = Some(wanted);
        drop(fleet);
        tokio::time::sleep(every).await;
    }
}

/// A DNS name, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    text: String,
    scheme: String,
    records: Records,
}

/// Records that list the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Records {
    /// Addresses (A, otherwise AAAA) of a host, all with one port: `dns+http://HOST:PORT`.
    Hosts {
        /// Name of the host.
        host: String,
        /// Port of each address.
        port: u16,
    },
    /// Hosts and ports of a service (SRV): `srv+http://_SERVICE._tcp.DOMAIN`.
    Service(String),
}

impl Name {
    /// Reads `dns+SCHEME://HOST:PORT` and `srv+SCHEME://SERVICE`; `None` for another kind of address.
    pub fn read(text: &str) -> Option<Result<Self, String>> {
        let (kind, rest) = text.split_once('+')?;
        let (scheme, authority) = rest.split_once("://")?;
        let records = match kind {
            "dns" => hosts(authority),
            "srv" => service(authority),
            _ => return None,
        };
        let named = |records| Self { text: text.to_owned(), scheme: scheme.to_owned(), records };
        Some(records.map(named))
    }

    /// Records to query.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Address of one server, from its host and port.
    pub fn url(&self, authority: &str) -> String {
        format!("{}://{authority}", self.scheme)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)
    }
}

fn hosts(authority: &str) -> Result<Records, String> {
    let bad = || format!("invalid HOST:PORT '{authority}': use dns+http://workers.example:8000");
    let (host, port) = authority.rsplit_once(':').ok_or_else(bad)?;
    let port = port.parse().map_err(|_| bad())?;
    if host.is_empty() || host.contains(['/', '[', ':']) {
        return Err(bad());
    }
    Ok(Records::Hosts { host: host.to_owned(), port })
}

/// Reads a service name; the records contain the port.
fn service(authority: &str) -> Result<Records, String> {
    if authority.is_empty() || authority.contains(['/', ':', '[']) {
        return Err(format!("invalid service name '{authority}': use srv+http://_http._tcp.workers.example"));
    }
    Ok(Records::Service(authority.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_records_to_query_and_a_scheme() {
        let read = |text| Name::read(text).map(|name| name.map(|name| (name.url("h:1"), name.records)));
        let hosts = Records::Hosts { host: "w.pool".into(), port: 8001 };
        assert_eq!(read("dns+grpc://w.pool:8001"), Some(Ok(("grpc://h:1".into(), hosts))));
        let service = Records::Service("_http._tcp.w".into());
        assert_eq!(read("srv+http://_http._tcp.w"), Some(Ok(("http://h:1".into(), service))));
        for other in ["http://w:1", "unix:/a+b", "a+http://w:1", "nonsense"] {
            assert_eq!(read(other), None, "{other}");
        }
        for bad in ["dns+http://w", "dns+http://:1", "dns+http://w:x", "dns+http://w:1/v2", "srv+http://w:1"]
        {
            assert!(matches!(read(bad), Some(Err(_))), "{bad}");
        }
    }
}
