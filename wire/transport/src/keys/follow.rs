//! Polls the key file.
//!
//! A change counts after two identical reads, and an invalid file changes nothing. To lock out all clients, put one new
//! key into the file.

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{KeyFile, Keys};
use crate::Settling;

/// Interval between two reads.
const EVERY: Duration = Duration::from_secs(1);

impl Keys {
    /// Follows the file until `ended`; does nothing without a file.
    pub(crate) async fn follow(self, ended: CancellationToken) {
        let Some(path) = self.file().map(Path::to_owned) else { return };
        let mut settling = Settling::default();
        loop {
            let file = path.clone();
            let read = tokio::task::spawn_blocking(move || KeyFile::text(&file)).await;
            let read = read.unwrap_or_else(|error| Err(error.to_string()));
            if settling.look(read.clone()) {
                self.take(&path, read);
            }
            if ended.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_none() {
                return;
            }
        }
    }

    /// Replaces the keys by those of the file.
    fn take(&self, path: &Path, read: Result<String, String>) {
        match read.and_then(|text| KeyFile::read(&text)) {
            Ok(file) => {
                self.replace(&file.keys);
                self.set_stale(None);
                tracing::info!(file = %path.display(), keys = file.keys.len(), "keys");
            }
            Err(reason) => {
                tracing::warn!(code = %parm_protocol::StableCode::KeyFile, file = %path.display(), %reason, "cannot use the key file: the previous keys stay valid");
                self.set_stale(Some(reason));
            }
        }
    }
}
