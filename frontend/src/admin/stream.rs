//! Stream of frames for a watcher.

use std::convert::Infallible;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::stream;
use parm_protocol::{StableCode, rest};
use parm_transport::FileFault;
use parm_transport::keys::{Access, Caller, Keys};
use parm_transport::tls::Tls;
use serde::Deserialize;
use serde_json::{Value, json};

use super::refusal::Refusal;
use crate::serve::Frontend;

/// Position from which a watcher resumes.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Resume {
    /// Time of the last frame that it received.
    since: u64,
}

pub(super) async fn watch(
    State(frontend): State<Frontend>,
    Extension(caller): Extension<Caller>,
    Extension(files): Extension<FollowedFiles>,
    known: Result<Query<Resume>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(Resume { since }) = known?;
    let watcher = frontend.watch(&caller, since, &files.faults(&frontend))?;
    let lines = stream::unfold((watcher, caller), |(mut watcher, caller)| async {
        let line = watcher.next().await?;
        // Revoking a key ends its open streams.
        caller.still_opens(Access::Read).then_some((Ok::<_, Infallible>(line), (watcher, caller)))
    });
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

#[derive(Clone)]
pub(super) struct FollowedFiles {
    pub(super) keys: Keys,
    pub(super) tls: Tls,
}

impl FollowedFiles {
    /// Returns their faults, in the form of `hello.faults`.
    pub(super) fn faults(&self, frontend: &Frontend) -> Value {
        let faults = self.keys.fault().into_iter().chain(self.tls.faults()).chain(bundles(frontend));
        let faults = faults.chain(frontend.unwritten());
        let told = faults.map(|mut fault| {
            rest::shorten(&mut fault.text);
            json!({"code": fault.code.name(), "text": fault.text, "fails": fault.fails})
        });
        told.collect()
    }
}

/// Returns the fault of bundles that do not exist.
fn bundles(frontend: &Frontend) -> Option<FileFault> {
    let path = frontend.core.config.bundles.as_deref().filter(|path| !path.exists())?;
    let text = format!("frontend.bundles: {} does not exist", path.display());
    Some(FileFault { code: StableCode::InvalidBundle, text, fails: true })
}
