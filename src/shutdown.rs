//! Handles SIGTERM and SIGINT: the first one starts a graceful shutdown, the second ends at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Returns a token that the first SIGTERM or SIGINT cancels. A second signal ends the process with status 130.
pub fn token() -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let first = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: draining"),
            _ = interrupt.recv() => tracing::info!("interrupted: draining, interrupt again to end at once"),
        }
        first.cancel();
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("second signal: ending at once");
        #[allow(clippy::disallowed_methods)] // the purpose is to leave without unwinding
        std::process::exit(130);
    });
    Ok(token)
}
