//! The readiness file: the bound addresses as JSON, for supervisors and tests that ask for port 0.

use std::fs;
use std::path::Path;

use anyhow::Context;
use parm_transport::server::Addresses;

/// Writes the file beside its place and renames it, so that whoever sees it sees it whole.
pub fn announce(
    path: Option<&Path>,
    addresses: &Addresses,
    admin: Option<std::net::SocketAddr>,
) -> anyhow::Result<()> {
    let Some(path) = path else {
        return Ok(());
    };
    let text = serde_json::json!({
        "http": addresses.http,
        "grpc": addresses.grpc,
        "metrics": addresses.metrics,
        "admin": admin,
        "pid": std::process::id(),
    });
    let beside = path.with_extension("partial");
    fs::write(&beside, format!("{text}\n"))
        .and_then(|()| fs::rename(&beside, path))
        .with_context(|| format!("--ready-file: cannot write '{}'", path.display()))
}
