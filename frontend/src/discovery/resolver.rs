//! Queries name servers. The resolver's types stay private to this file.

use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::{ResolverBuilder, TokioResolver};

use super::dns::{Name, Records};

/// Queries the configured name servers, or those of the system. Created on first use, as most frontends need none.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    servers: Vec<SocketAddr>,
    made: OnceLock<TokioResolver>,
}

impl Resolver {
    pub(super) fn new(servers: Vec<SocketAddr>) -> Self {
        Self { servers, made: OnceLock::new() }
    }

    /// Resolves a name to servers as `HOST:PORT`.
    pub(super) async fn resolve(&self, name: &Name) -> Result<Vec<String>, String> {
        let resolver = self.made()?;
        let found = match name.records() {
            Records::Hosts { host, port } => hosts(resolver, host, *port).await,
            Records::Service(service) => services(resolver, service).await,
        };
        match found {
            Err(error) if error.is_no_records_found() => Ok(Vec::new()),
            found => found.map_err(|error| error.to_string()),
        }
    }

    fn made(&self) -> Result<&TokioResolver, String> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let resolver = self.builder().and_then(ResolverBuilder::build);
        let resolver = resolver.map_err(|error| format!("cannot set up name resolution: {error}"))?;
        Ok(self.made.get_or_init(|| resolver))
    }

    fn builder(&self) -> Result<ResolverBuilder<TokioRuntimeProvider>, NetError> {
        let mut builder = if self.servers.is_empty() {
            TokioResolver::builder_tokio()?
        } else {
            let servers = self.servers.iter().map(name_server).collect();
            let config = ResolverConfig::from_name_servers(servers);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let options: &mut ResolverOpts = builder.options_mut();
        // Servers with addresses of both families would be found twice.
        options.ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
        // The caller decides how often to query.
        options.cache_size = 0;
        Ok(builder)
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let at = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    NameServerConfig::new(address.ip(), true, vec![at(ConnectionConfig::udp()), at(ConnectionConfig::tcp())])
}

async fn hosts(resolver: &TokioResolver, host: &str, port: u16) -> Result<Vec<String>, NetError> {
    let found = resolver.lookup_ip(host).await?;
    Ok(found.iter().map(|address: IpAddr| SocketAddr::new(address, port).to_string()).collect())
}

async fn services(resolver: &TokioResolver, service: &str) -> Result<Vec<String>, NetError> {
    let found = resolver.srv_lookup(service).await?;
    let records = found.answers().iter().filter_map(|record| match &record.data {
        RData::SRV(record) => Some(record),
        _ => None,
    });
    Ok(targets(records))
}

/// Servers of the first priority only: the others are backups, and the dispatcher balances load better than weights.
fn targets<'a>(records: impl Iterator<Item = &'a SRV>) -> Vec<String> {
    // The root as a target means that the service is not available (RFC 2782).
    let records: Vec<_> = records.filter(|record| !record.target.is_root()).collect();
    let first = records.iter().map(|record| record.priority).min();
    let chosen = records.iter().filter(|record| Some(record.priority) == first);
    chosen
        .map(|record| format!("{}:{}", record.target.to_utf8().trim_end_matches('.'), record.port))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_as_a_target_is_not_a_server() {
        let of = |records: &[(u16, &str)]| {
            let record =
                |(priority, target): &(u16, &str)| SRV::new(*priority, 0, 8000, target.parse().unwrap());
            targets(records.iter().map(record).collect::<Vec<_>>().iter())
        };
        assert_eq!(of(&[(0, ".")]), [""; 0]);
        assert_eq!(
            of(&[(0, "."), (2, "b."), (1, "a.pool."), (1, "c.pool.")]),
            ["a.pool:8000", "c.pool:8000"]
        );
    }
}
