//! Polls the TLS files.
//!
//! A change counts after two identical reads, and invalid files change nothing: issuers write one file after the other,
//! and some write them in place.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Tls;
use super::files::{Files, Print};
use super::handle::Charter;
use crate::Settling;

/// Interval between two reads.
const EVERY: Duration = Duration::from_secs(1);

impl Tls {
    /// Follows the files until `ended`; does nothing without files.
    pub async fn follow(self, ended: CancellationToken) {
        let Some(charter) = self.0 else { return };
        let mut settling: Settling<Result<Print, String>> = Settling::default();
        settling.believe(Ok(charter.print));
        loop {
            let looking = charter.clone();
            let read = tokio::task::spawn_blocking(move || Files::read(&looking.config)).await;
            let read = read.unwrap_or_else(|error| Err(error.to_string()));
            let settled = settling.look(read.as_ref().map(Files::print).map_err(Clone::clone));
            if settled || charter.is_due() {
                charter.changed(read);
            }
            if ended.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_none() {
                return;
            }
        }
    }
}

impl Charter {
    fn changed(self: &Arc<Self>, read: Result<Files, String>) {
        *self.counts.awaited.lock() = None;
        let taken = read.and_then(|files| self.take(&files));
        *self.counts.stale.lock() = taken.as_ref().err().cloned();
        match taken {
            Ok(()) => tracing::info!("TLS: new connections use the changed files"),
            Err(reason) => {
                tracing::warn!(code = %parm_protocol::StableCode::TlsFiles, %reason, "cannot use the files of [tls]: the previous ones stay in use")
            }
        }
    }
}
