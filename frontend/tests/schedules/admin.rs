//! Calls of the admin API without a network.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use parm_frontend::Frontend;
use serde_json::Value;
use tower::ServiceExt;

#[derive(Clone)]
pub(crate) struct Admin(axum::Router);

impl Admin {
    pub(crate) fn of(frontend: &Frontend) -> Self {
        Self(frontend.admin().router())
    }

    /// Sends a call; returns the answer, which may be a refusal.
    pub(crate) async fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = Request::builder().method(method).uri(format!("/admin/v1{path}"));
        let request = request.header("content-type", "application/json").body(Body::from(body.to_string()));
        let response = self.0.clone().oneshot(request.expect("paths are well formed")).await;
        let body = response.expect("infallible").into_body().collect().await;
        serde_json::from_slice(&body.expect("a body").to_bytes()).unwrap_or(Value::Null)
    }

    /// All instances, by address.
    pub(crate) async fn instances(&self) -> BTreeMap<String, Value> {
        let listed = self.call("GET", "/instances", &Value::Null).await;
        let entry = |entry: &Value| (entry["address"].as_str().unwrap_or_default().to_owned(), entry.clone());
        listed.as_array().map(|all| all.iter().map(entry).collect()).unwrap_or_default()
    }
}
