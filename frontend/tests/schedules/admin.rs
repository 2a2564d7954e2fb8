//! Calls of the admin API without a network.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use parm_frontend::Frontend;
use parm_settings::{PolicyKind, PoolSettings};
use serde_json::Value;
use tower::ServiceExt;

use crate::schedule::Model;
use crate::world::{Rules, Truth};

#[derive(Clone)]
pub(crate) struct Admin(axum::Router);

impl Admin {
    pub(crate) fn of(frontend: &Frontend) -> Self {
        Self(frontend.admin().router())
    }

    async fn send(&self, request: Request<Body>) -> (u16, Value) {
        let response = match self.0.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> Value {
        let request =
            Request::get(format!("/admin/v1{path}")).body(Body::empty()).expect("paths are well formed");
        self.send(request).await.1
    }

    /// All instances, by address.
    pub(crate) async fn instances(&self) -> BTreeMap<String, Value> {
        let listed = self.get("/instances").await;
        let entry = |entry: &Value| (entry["address"].as_str().unwrap_or_default().to_owned(), entry.clone());
        listed.as_array().map(|all| all.iter().map(entry).collect()).unwrap_or_default()
    }

    pub(crate) async fn settings(&self) -> Value {
        self.get("/settings").await
    }

    /// Patches the settings of a model, or of all; returns whether the patch was accepted.
    pub(crate) async fn patch(&self, model: Option<u8>, patch: &Value) -> bool {
        let path = model.map_or(String::new(), |model| format!("/{}", Model::Asked(model).name()));
        self.call("PATCH", &format!("/settings{path}"), patch).await == 200
    }

    /// Sends a call; returns the status.
    pub(crate) async fn call(&self, method: &str, path: &str, body: &Value) -> u16 {
        let request = Request::builder().method(method).uri(format!("/admin/v1{path}"));
        let request = request.header("content-type", "application/json").body(Body::from(body.to_string()));
        self.send(request.expect("paths are well formed")).await.0
    }
}

/// Applies a patch to settings (RFC 7396, without nulls).
pub(crate) fn merged(target: &Value, patch: &Value) -> Value {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            let mut both = target.clone();
            for (name, value) in patch {
                let next = merged(both.get(name).unwrap_or(&Value::Null), value);
                both.insert(name.clone(), next);
            }
            Value::Object(both)
        }
        _ => patch.clone(),
    }
}

/// Updates the expectations that depend on settings.
pub(crate) fn note(truth: &mut Truth, settings: &Value, models: u8) {
    let constants = truth.constants.clone();
    let read = |own: &Value| {
        serde_json::from_value(own.clone()).map(|own: PoolSettings| own.with_constants_of(&constants))
    };
    let Ok(of_all) = read(&settings["dispatch"]) else { return };
    truth.excuses.add(&of_all);
    for model in 0..models {
        let own = read(&settings["models"][Model::Asked(model).name()]).unwrap_or_else(|_| of_all.clone());
        truth.excuses.add(&own);
        let reserves = matches!(own.policy, PolicyKind::Parm | PolicyKind::ApproximateBackup);
        let stands_in = reserves || matches!(own.policy, PolicyKind::ParmPlus | PolicyKind::StandIn);
        let rules = Rules { reserves, stands_in };
        truth.rules.insert(model, rules);
    }
    truth.rules_since = tokio::time::Instant::now();
}
