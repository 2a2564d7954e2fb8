//! What `parm serve` and `parm worker` have in common around their services.

use std::future::Future;
use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::Context;

use parm_transport::tls::Tls;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Failure;
use crate::cli::Common;
use crate::settings::Settings;

/// What is not over by then when the command is, is given up.
const LONGEST_END: Duration = Duration::from_secs(2);

/// Open files that connections of clients leave to everything else: listeners, operators' connections, workers, models, logs.
const RESERVED_FILES: usize = 160;

/// Prints the configuration where that is all that was asked for: then there is nothing more to do.
pub fn dumped(flags: &Common, settings: &Settings) -> anyhow::Result<bool> {
    if flags.dump_config {
        use std::io::Write;
        std::io::stdout().write_all(settings.to_toml()?.as_bytes())?;
    }
    Ok(flags.dump_config)
}

/// Runs the command's future on a runtime, with logging installed until it ends. `computes`: models run on its threads too, so there is
/// one more than there are cores, for what else there is to do.
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
    // Left after the command and before the runtime ends: the exporter's last spans need it.
    let inside = runtime.enter();
    let guard = crate::logging::install(&settings.log, service).map_err(Failure::Configuration)?;
    if !settings.ignored.is_empty() {
        tracing::debug!(variables = ?settings.ignored, "variables that name no section of the configuration are ignored");
    }
    raise_open_files();
    let outcome = runtime.block_on(command);
    drop(guard);
    drop(inside);
    // A model that hangs must not keep the process from ending, and it may do so on any thread.
    runtime.shutdown_timeout(LONGEST_END);
    outcome
}

/// Raises the limit of open files as far as we may: every connection takes one, and the usual soft limit is meant for
/// programs that know no better than `select`.
pub fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let shown = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::debug!(from = shown(current), to = shown(maximum), "limit of open files"),
        Err(error) => {
            tracing::debug!(%error, limit = shown(current), "the limit of open files stays as it is");
        }
    }
}

/// Bounds the connections of clients by the limit of open files. Where clients could take all of them, no worker could be
/// connected to and no file be read.
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

/// Connections that a limit of open files leaves room for.
fn connections_within(wanted: NonZeroUsize, limit: u64) -> NonZeroUsize {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    // With a limit that small nothing works; half of it is as good as any.
    let left = limit.saturating_sub(RESERVED_FILES).max(limit / 2);
    NonZeroUsize::new(left).map_or(NonZeroUsize::MIN, |left| left.min(wanted))
}

/// Reads the files of `[tls]`, for what is listened on and whoever is dialled.
pub fn tls(settings: &mut Settings) -> Result<Tls, Failure> {
    let tls = Tls::open(&settings.tls).map_err(|error| Failure::Configuration(error.into()))?;
    settings.frontend.client.tls = tls.clone();
    settings.backend.upstream.client.tls = tls.clone();
    Ok(tls)
}

/// Which errors of the backend are the configuration's: an engine that does not exist, a library that is not there.
pub fn backend_failure(error: parm_backend::Error) -> Failure {
    if error.is_configuration() { Failure::Configuration(error.into()) } else { Failure::Run(error.into()) }
}

/// Which errors of a server are the configuration's: a key file that cannot be used.
pub fn server_failure(error: parm_protocol::Error) -> Failure {
    match error {
        parm_protocol::Error::KeyFile { .. } => Failure::Configuration(error.into()),
        _ => Failure::Run(error.into()),
    }
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
