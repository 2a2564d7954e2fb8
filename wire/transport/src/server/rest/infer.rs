//! `POST .../infer`: the hot path. JSON or the binary extension in, the same out.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use parm_protocol::bounds::Room;
use parm_protocol::rest::{self as codec, HEADER_LENGTH, Wanted};
use parm_protocol::{
    Code, Context, Error, InferRequest, InferResponse, InferenceService, ModelRef, Transport,
};

use super::{Incomplete, JSON, outcome, problem, traceparent};
use crate::budget::Share;
use crate::server::body;
use crate::server::shared::Shared;

const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
const JSON_LENGTH: HeaderName = HeaderName::from_static(HEADER_LENGTH);

pub(super) async fn answer<S: InferenceService>(
    shared: &Shared<S>,
    model: ModelRef,
    request: Incomplete,
    key: Option<Arc<str>>,
) -> Response {
    let arrived = tokio::time::Instant::now();
    let traceparent = traceparent(request.headers());
    let (request, wanted, share) = match read(request, shared, &model).await {
        Ok((request, wanted, share)) => (InferRequest { model, ..request }, wanted, share),
        Err(error) => return problem(&shared.rejected(error, Transport::Http)),
    };
    let transport = Transport::Http;
    let context = Context { arrived, deadline: None, transport, traceparent, caller: None, key };
    let answered = shared.service.infer(request, context).await;
    match answered.and_then(|response| respond(&response, &wanted, share)) {
        Ok(response) => response,
        Err(error) => problem(&error),
    }
}

/// A request whose model the caller fills in, and its share of the byte budget.
async fn read<S: InferenceService>(
    request: Incomplete,
    shared: &Shared<S>,
    model: &ModelRef,
) -> Result<(InferRequest, Wanted, Arc<Share>), Error> {
    let json_length = json_length(request.headers())?;
    let body::Held { bytes, share } = body::read(request, shared).await?;
    let room = Room::of(shared.config.max_body_bytes.get());
    let parsed = codec::request::decode_within(ModelRef::latest(""), json_length, bytes, room);
    let (request, wanted) = parsed.map_err(|error| unknown(shared, model).unwrap_or(error))?;
    shared.holds(&share, &request)?;
    Ok((request, wanted, share))
}

/// The error of a request to an unknown model, whatever else is wrong with it.
fn unknown<S: InferenceService>(shared: &Shared<S>, model: &ModelRef) -> Option<Error> {
    shared.service.model_metadata(model).err().filter(|error| error.code() == Code::NotFound)
}

fn json_length(headers: &HeaderMap) -> Result<Option<usize>, Error> {
    let Some(value) = headers.get(JSON_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    let message = || format!("header {HEADER_LENGTH} is not a number of bytes: {value:?}");
    length.map(Some).ok_or_else(|| Error::Malformed { message: message() })
}

/// The response, which counts against the byte budget until the client has read it.
fn respond(response: &InferResponse, wanted: &Wanted, share: Arc<Share>) -> Result<Response, Error> {
    let encoded = codec::response::encode(response, wanted)?;
    share.turn_into(encoded.len())?;
    let json_length = encoded.json_length();
    let mut answer = Response::new(Body::new(encoded));
    let headers = answer.headers_mut();
    match json_length {
        Some(length) => {
            headers.insert(CONTENT_TYPE, OCTETS);
            headers.insert(JSON_LENGTH, HeaderValue::from(length));
        }
        None => {
            headers.insert(CONTENT_TYPE, JSON);
        }
    }
    headers.extend(outcome(response));
    answer.extensions_mut().insert(share);
    Ok(answer)
}
