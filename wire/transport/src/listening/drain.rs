//! The end of a group of connections: draining, and cutting connections that exceed the drain timeout.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections that end together; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain {
    /// Cancelled when listening has ended: connections finish their requests and close.
    pub(crate) begun: CancellationToken,
    /// Cancelled when the drain timeout has expired.
    pub(crate) cut: CancellationToken,
    /// Every connection.
    pub(crate) connections: TaskTracker,
}

impl Drain {
    /// Lets connections finish within `limit`, and returns how many had to be cut.
    pub(crate) async fn end(&self, limit: Duration) -> usize {
        self.begun.cancel();
        self.connections.close();
        let cut = match tokio::time::timeout(limit, self.connections.wait()).await {
            Ok(()) => 0,
            Err(_) => self.connections.len(),
        };
        self.cut.cancel();
        cut
    }
}
