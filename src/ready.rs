//! Writes the readiness file: the bound addresses as JSON, for supervisors and tests that use port 0.

use std::fs;
use std::path::Path;

use anyhow::Context;
use parm_transport::server::Addresses;

/// Writes a temporary file in the same folder and renames it, so that readers never see a partial file.
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
