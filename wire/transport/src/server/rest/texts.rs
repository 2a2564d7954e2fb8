//! The routes of embedding servers: texts in JSON, answered by a model of strings.

use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::Query;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use parm_protocol::bounds::Room;
use parm_protocol::texts::{self, Exchange};
use parm_protocol::{
    Context, Error, InferRequest, InferenceService, ModelMetadata, ModelRef, Transport, terms,
};
use serde::Deserialize;
use tokio::time::Instant;

use super::{Incomplete, JSON, outcome, told, traceparent};
use crate::budget::Share;
use crate::server::body;
use crate::server::forward::{self, ErrorForm};
use crate::server::shared::Shared;

#[derive(Default, Deserialize)]
struct InQuery {
    /// For bodies without a model.
    model: Option<String>,
}

/// Lists the models that these routes can name, as OpenAI's clients expect. The time of a model's creation is unknown: it is
/// that of the first list.
pub(super) fn models<S: InferenceService>(shared: &Shared<S>) -> Response {
    static CREATED: LazyLock<u64> =
        LazyLock::new(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()));
    let names = match with_texts(shared, |_| true) {
        Ok(names) => names,
        Err(error) => return forward::problem(&error, ErrorForm::OpenAi),
    };
    let model = |name: String| serde_json::json!({ "id": name, "object": "model", "created": *CREATED, "owned_by": "parm" });
    let data: Vec<_> = names.into_iter().map(model).collect();
    told(Ok(serde_json::json!({ "object": "list", "data": data })))
}

pub(super) async fn exchange<S: InferenceService, E: Exchange>(
    shared: &Shared<S>,
    request: Incomplete,
    key: Option<Arc<str>>,
) -> Response {
    let form = if E::OPENAI { ErrorForm::OpenAi } else { ErrorForm::Protocol };
    match answered::<S, E>(shared, request, key).await {
        Ok(response) => response,
        Err(error) => forward::problem(&error, form),
    }
}

async fn answered<S: InferenceService, E: Exchange>(
    shared: &Shared<S>,
    request: Incomplete,
    key: Option<Arc<str>>,
) -> Result<Response, Error> {
    let (arrived, transport) = (Instant::now(), Transport::Http);
    let traceparent = traceparent(request.headers());
    let rejected = |error| shared.rejected(error, transport);
    let (exchange, request, share) = read::<S, E>(shared, request).await.map_err(rejected)?;
    let context = Context { arrived, deadline: None, transport, traceparent, caller: None, key };
    let rows = request.inputs[0].tensor.shape()[0];
    let answer = shared.service.infer(request, context).await?;
    let body = exchange.answer(&answer, rows)?;
    share.turn_into(body.len())?;
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().extend(outcome(&answer));
    response.extensions_mut().insert(share);
    Ok(response)
}

async fn read<S: InferenceService, E: Exchange>(
    shared: &Shared<S>,
    mut request: Incomplete,
) -> Result<(E, InferRequest, Arc<Share>), Error> {
    let parameters = terms::take(request.headers_mut())?;
    let address = Query::<InQuery>::try_from_uri(request.uri()).map(|Query(address)| address);
    let address = address.map_err(|error| Error::Malformed { message: error.body_text() })?;
    let held = body::read(request, shared).await?;
    let mut exchange: E = texts::read(&held.bytes)?;
    let (model, metadata) = match exchange.model().map(str::to_owned).or(address.model) {
        Some(name) => named(shared, name, E::IN_ROW)?,
        None => only(shared, E::IN_ROW)?,
    };
    let rows = exchange.rows(&mut Room::of(shared.config.max_body_bytes.get()))?;
    let request = texts::request(model, &metadata, rows, parameters)?;
    shared.holds(&held.share, &request)?;
    Ok((exchange, request, held.share))
}

/// The form of the models that a route needs.
fn needed(in_row: usize) -> &'static str {
    if in_row == 1 {
        "a model with one input of strings, a text in each row"
    } else {
        "a model that scores pairs of texts"
    }
}

/// The model of this name, which must take so many texts in a row.
fn named<S: InferenceService>(
    shared: &Shared<S>,
    name: String,
    in_row: usize,
) -> Result<(ModelRef, ModelMetadata), Error> {
    let model = ModelRef::latest(name);
    let metadata = shared.service.model_metadata(&model)?;
    if texts::texts_in_row(&metadata) == Some(in_row) {
        return Ok((model, metadata));
    }
    let message = format!("'{}' cannot answer this: the route needs {}", model.name, needed(in_row));
    Err(Error::Malformed { message })
}

/// The only served model that takes so many texts in a row.
fn only<S: InferenceService>(shared: &Shared<S>, in_row: usize) -> Result<(ModelRef, ModelMetadata), Error> {
    let mut names = with_texts(shared, |texts| texts == in_row)?;
    let message = match &mut names[..] {
        [only] => return named(shared, std::mem::take(only), in_row),
        [] => format!("no served model can answer this: the route needs {}", needed(in_row)),
        [first, ..] => {
            format!("several models can answer this: add one to the address, such as ?model={first}")
        }
    };
    Err(Error::Malformed { message })
}

/// The served models that take texts, as many in a row as `fits` accepts.
fn with_texts<S: InferenceService>(
    shared: &Shared<S>,
    fits: impl Fn(usize) -> bool,
) -> Result<Vec<String>, Error> {
    let mut names: Vec<_> =
        shared.service.repository_index(true)?.into_iter().map(|model| model.name).collect();
    names.sort();
    names.dedup();
    names.retain(|name| {
        let metadata = shared.service.model_metadata(&ModelRef::latest(name.as_str()));
        metadata.is_ok_and(|metadata| texts::texts_in_row(&metadata).is_some_and(&fits))
    });
    Ok(names)
}
