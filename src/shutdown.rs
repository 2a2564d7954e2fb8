//! Handles SIGTERM and SIGINT: the first one starts a graceful shutdown, a later one ends at once.

use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Time in which further signals belong to the first. A terminal signals a whole group of processes, and wrappers such
/// as `timeout` and `npm` pass their own signal on as well.
const SAME: Duration = Duration::from_millis(500);

/// Returns a token that the first SIGTERM or SIGINT cancels. A later signal ends the process with status 130.
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
        tokio::time::sleep(SAME).await;
        // New streams do not have the signals of the meantime.
        let (Ok(mut terminate), Ok(mut interrupt)) =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            return;
        };
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

/// Calls back at the first signal, in a process whose work is not asynchronous. A later signal ends the process.
pub fn on_signal(asked: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let wait = async {
        let Ok(token) = token() else { return };
        token.cancelled().await;
        asked();
        std::future::pending::<()>().await;
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(move || runtime.block_on(wait)).context("cannot watch for signals")?;
    Ok(())
}
