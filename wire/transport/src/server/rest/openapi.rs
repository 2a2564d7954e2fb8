//! `/v2/openapi.json`: the description of the routes.

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;

use super::json;

pub(super) const DOCUMENT: &str = include_str!("openapi.json");

pub(super) async fn document() -> Response {
    json(StatusCode::OK, Bytes::from_static(DOCUMENT.as_bytes()))
}
