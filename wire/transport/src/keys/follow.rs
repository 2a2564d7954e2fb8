//! Reads the key file again and again, as the workers file is read: a change counts once two looks in a row saw it, and a file
//! that cannot be used changes nothing. To shut everybody out put one new key into it.

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{KeyFile, Keys};
use crate::Settling;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

impl Keys {
    /// Follows the file until `ended`; nothing to do without one.
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

    /// Makes the keys what the file says.
    fn take(&self, path: &Path, read: Result<String, String>) {
        match read.and_then(|text| KeyFile::read(&text)) {
            Ok(file) => {
                self.replace(&file.keys);
                tracing::info!(file = %path.display(), keys = file.keys.len(), "keys");
            }
            Err(reason) => {
                tracing::warn!(file = %path.display(), %reason, "cannot use the key file: the keys before it stay");
            }
        }
    }
}
