//! Enforces deadlines on the client, independently of the server.

use std::future::Future;

use tokio::time::Instant;

use parm_protocol::Error;

/// The future's result, or a timeout at the deadline.
pub(super) async fn within<T>(
    deadline: Option<Instant>,
    future: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(deadline) = deadline else {
        return future.await;
    };
    let started = Instant::now();
    if deadline <= started {
        return Err(Error::DeadlineExceeded { waited: std::time::Duration::ZERO });
    }
    match tokio::time::timeout_at(deadline, future).await {
        Ok(result) => result,
        Err(_) => Err(Error::DeadlineExceeded { waited: started.elapsed() }),
    }
}
