//! Calls of the admin API without a network.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use parm_frontend::Frontend;
use serde_json::Value;

#[derive(Clone)]
pub(crate) struct Admin(TowerToHyperService<axum::Router>);

impl Admin {
    pub(crate) fn of(frontend: &Frontend) -> Self {
        Self(TowerToHyperService::new(frontend.admin().router()))
    }

    /// Sends a call; returns the answer, which may be a refusal.
    pub(crate) async fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = Request::builder().method(method).uri(format!("/admin/v1{path}"));
        let request = request.header("content-type", "application/json").body(Body::from(body.to_string()));
        let response = match self.0.call(request.expect("paths are well formed")).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        serde_json::from_slice(&body).unwrap_or(Value::Null)
    }

    /// All instances, by address.
    pub(crate) async fn instances(&self) -> BTreeMap<String, Value> {
        let listed = self.call("GET", "/instances", &Value::Null).await;
        let entry = |entry: &Value| (entry["address"].as_str().unwrap_or_default().to_owned(), entry.clone());
        listed.as_array().map(|all| all.iter().map(entry).collect()).unwrap_or_default()
    }

    pub(crate) async fn settings(&self) -> Value {
        self.call("GET", "/settings", &Value::Null).await
    }

    /// Patches the settings of a model, or of all.
    pub(crate) async fn patch(&self, model: Option<&str>, patch: &Value) {
        let path = model.map_or(String::new(), |model| format!("/{model}"));
        self.call("PATCH", &format!("/settings{path}"), patch).await;
    }
}
