//! `GET /v2/frames`: upgrades the connection to frames.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use parm_protocol::InferenceService;

use super::Served;
use crate::keys::Caller;
use crate::server::requests::Kept;

pub(super) async fn upgrade<S: InferenceService>(State(shared): Served<S>, mut request: Request) -> Response {
    let kept = request.extensions_mut().remove::<Kept>();
    let caller = request.extensions_mut().remove::<Caller>().unwrap_or_default();
    shared.frames.answer(&mut request, caller, shared.ages.next(), kept).map(|()| Body::empty())
}
