//! Sets up the process for `parm serve` and `parm worker`: runtime, logging, limits, TLS, metrics, readiness file.

use std::fs;
use std::future::Future;
use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::Context;

use parm_protocol::StableCode;
use parm_transport::server::Addresses;
use parm_transport::tls::Tls;
use prometheus::{Registry, TextEncoder};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Failure;
use crate::cli::Common;
use crate::codes::coded;
use crate::settings::Settings;

/// Time for tasks to end after the command; later ones are abandoned.
const LONGEST_END: Duration = Duration::from_secs(2);

/// Open files that clients cannot use: they serve listeners, operators' connections, workers, models and logs.
const RESERVED_FILES: usize = 160;

/// Prints the configuration if `--dump-config` is set. Returns whether it did, and the command is done.
pub fn dumped(flags: &Common, settings: &Settings) -> anyhow::Result<bool> {
    if flags.dump_config {
        use std::io::Write;
        crate::printer::stdout().write_all(settings.to_toml()?.as_bytes())?;
    }
    Ok(flags.dump_config)
}

/// Runs the command's future on a runtime, with logging installed until it ends. With `computes`, models run on the same
/// threads, so there is one thread more than there are cores.
pub fn run(
    settings: &Settings,
    (service, computes): (&'static str, bool),
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if computes && !crate::environment::sets_threads() {
        builder.worker_threads(std::thread::available_parallelism().map_or(1, NonZeroUsize::get) + 1);
    }
    let runtime = builder.enable_all().build().context("cannot start the runtime")?;
    // Dropped after the command and before the runtime ends: the exporter's last spans need it.
    let inside = runtime.enter();
    let guard = crate::logging::install(&settings.log, service).map_err(Failure::Configuration)?;
    if !settings.ignored.is_empty() {
        tracing::debug!(variables = ?settings.ignored, "ignoring variables that do not name a section of the configuration");
    }
    raise_open_files();
    let outcome = runtime.block_on(command);
    drop(guard);
    drop(inside);
    // A hung model must not keep the process from ending, whichever thread it runs on.
    runtime.shutdown_timeout(LONGEST_END);
    outcome
}

/// Raises the limit of open files to its hard limit. Every connection takes one file, and the usual soft limit protects
/// only programs that use `select`.
pub fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let shown = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::debug!(from = shown(current), to = shown(maximum), "limit of open files"),
        Err(error) => {
            tracing::debug!(%error, limit = shown(current), "cannot raise the limit of open files");
        }
    }
}

/// Bounds the connections of clients by the limit of open files. If clients could take all of them, the process could not
/// connect to workers or read files.
pub fn bound_connections(server: &mut parm_transport::server::Config) {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
    let (wanted, allowed) = (server.max_connections, connections_within(server.max_connections, limit));
    if allowed < wanted {
        tracing::info!(
            wanted,
            allowed,
            limit,
            "server.max_connections is bounded by the limit of open files"
        );
        server.max_connections = allowed;
    }
}

/// Returns the number of connections that a limit of open files allows.
fn connections_within(wanted: NonZeroUsize, limit: u64) -> NonZeroUsize {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    // A limit this low is not usable in any case; half of it is as good as any number.
    let left = limit.saturating_sub(RESERVED_FILES).max(limit / 2);
    NonZeroUsize::new(left).map_or(NonZeroUsize::MIN, |left| left.min(wanted))
}

/// Reads the files of `[tls]`, for listeners and for connections to workers.
pub fn tls(settings: &mut Settings) -> Result<Tls, Failure> {
    let tls = Tls::open(&settings.tls).map_err(|error| Failure::Configuration(error.into()))?;
    settings.frontend.client.tls = tls.clone();
    Ok(tls)
}

/// Writes the bound addresses as JSON to the readiness file, for supervisors and tests that use port 0. A temporary file in the same
/// folder is renamed, so that readers never see a partial one.
pub fn announce(
    flags: &Common,
    addresses: &Addresses,
    admin: Option<std::net::SocketAddr>,
) -> anyhow::Result<()> {
    let Some(path) = &flags.ready_file else { return Ok(()) };
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

/// Returns the metrics page of a registry.
pub fn metrics_page(registry: &Registry) -> String {
    let mut text = String::new();
    if let Err(error) = TextEncoder::new().encode_utf8(&registry.gather(), &mut text) {
        tracing::error!(%error, "metrics cannot be written");
    }
    text
}

/// Tells configuration errors of the backend, such as an unknown engine or a missing library, from other failures.
pub fn backend_failure(error: parm_backend::Error) -> Failure {
    if error.is_configuration() { Failure::Configuration(error.into()) } else { Failure::Run(error.into()) }
}

/// Fails for `--exit-on-error` if a model is not loaded.
pub fn all_loaded(absent: Vec<parm_protocol::ModelIndex>) -> Result<(), Failure> {
    let Some(model) = absent.first() else { return Ok(()) };
    let others = match absent.len() {
        1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    };
    let problem = format!("model '{}' is not loaded: {}{others}", model.name, model.reason);
    Err(coded(StableCode::ModelNotLoaded, problem).into())
}

/// Tells configuration errors of a server, such as an invalid key file, from other failures.
pub fn server_failure(error: parm_protocol::Error) -> Failure {
    match error {
        parm_protocol::Error::KeyFile { .. } => Failure::Configuration(error.into()),
        _ => Failure::Run(error.into()),
    }
}

/// Reports the end of a drain in which this many connections were cut.
pub fn drained(cut: usize) -> Result<(), Failure> {
    if cut > 0 {
        let problem =
            format!("{cut} connections were cut: their requests took longer than server.drain_timeout_ms");
        return Err(coded(StableCode::DrainTimeout, problem).into());
    }
    tracing::info!("drained");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_open_files_when_the_limit_is_low() {
        let within = |wanted, limit| connections_within(NonZeroUsize::new(wanted).unwrap(), limit).get();
        assert_eq!(within(16_384, 1024), 864);
        assert_eq!(within(16_384, 1 << 20), 16_384);
        assert_eq!(within(100, 1024), 100);
        assert_eq!([within(16_384, 64), within(16_384, 1), within(16_384, u64::MAX)], [32, 1, 16_384]);
    }
}
