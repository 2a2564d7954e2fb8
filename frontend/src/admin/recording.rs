//! Live recording as JSON lines, for the requested number of seconds.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::stream;
use parm_transport::keys::{Access, Caller};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::refusal::Refusal;
use crate::error::Error;
use crate::record::Recording;
use crate::serve::Frontend;

/// Longest recording: a day.
const LONGEST_S: u64 = 86_400;

/// Interval at which an idle recording checks its time and the state of the frontend.
const BEAT: Duration = Duration::from_millis(500);

/// Duration of the recording.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Length {
    /// Seconds. Default 60.
    seconds: u64,
}

impl Default for Length {
    fn default() -> Self {
        Self { seconds: 60 }
    }
}

pub(super) async fn stream(
    State(frontend): State<Frontend>,
    Extension(caller): Extension<Caller>,
    length: Result<Query<Length>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(Length { seconds }) = length?;
    if !(1..=LONGEST_S).contains(&seconds) {
        return Err(Error::RecordingLength { seconds, limit: LONGEST_S }.into());
    }
    let until = Instant::now() + Duration::from_secs(seconds);
    let running = LiveRecording { recording: frontend.record()?, until, caller };
    let chunks = stream::unfold(Some(running), |running| async { Some(running?.chunk().await) });
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(chunks)).into_response())
}

struct LiveRecording {
    recording: Recording,
    until: Instant,
    caller: Caller,
}

impl LiveRecording {
    /// Returns the next lines, and the rest of the recording.
    async fn chunk(mut self) -> (Result<Vec<u8>, Infallible>, Option<Self>) {
        let mut text = Vec::new();
        while text.is_empty() {
            let beat = (Instant::now() + BEAT).min(self.until);
            // An empty text shows that the wait timed out.
            let _ = timeout_at(beat, self.recording.next(&mut text)).await;
            // Revoking a key ends its open streams.
            let over = Instant::now() >= self.until || self.recording.is_over();
            if over || !self.caller.still_opens(Access::Read) {
                self.recording.end(&mut text);
                return (Ok(text), None);
            }
        }
        (Ok(text), Some(self))
    }
}
