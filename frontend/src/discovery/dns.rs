//! A DNS name with several servers, such as a headless service.
//!
//! The name is resolved at a fixed interval, regardless of time to live, because an operator can bound an interval.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parm_protocol::{Place, StableCode};

use super::connect::Connect;
use super::member::Source;
use super::membership::{Found, Listing, ServerList};

/// A name that is resolved again and again.
pub(super) struct Resolved {
    pub(super) name: Name,
    pub(super) connect: Arc<dyn Connect>,
    /// Timeout of an answer.
    pub(super) patience: Duration,
}

impl Listing for Resolved {
    const SOURCE: Source = Source::Dns;
    const CODE: StableCode = StableCode::NameUnresolved;

    async fn list(&mut self) -> Result<ServerList, String> {
        let answer = tokio::time::timeout(self.patience, self.connect.resolve(&self.name)).await;
        let late = |_| Err(format!("name resolution timed out after {:?}", self.patience));
        let servers = answer.unwrap_or_else(late).map_err(|reason| format!("cannot resolve it: {reason}"))?;
        let found = |server: &String| (self.name.url(server), Found::at(Place::default()));
        Ok(ServerList { servers: servers.iter().map(found).collect(), problem: None })
    }
}

impl fmt::Display for Resolved {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(to)
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
