//! Calls of the admin API without a network, and concurrent changes: the result must equal that of some order of them.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use parm_frontend::Frontend;
use parm_settings::PoolSettings;
use serde_json::Value;
use tower::ServiceExt;

use crate::run::Stage;
use crate::schedule::Model;
use crate::world::Truth;

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

/// Updates the conditions that settings set.
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
    }
}

type Patch = (Option<u8>, Value);
/// Default settings, and those of single models.
type Settings = (PoolSettings, BTreeMap<String, PoolSettings>);

impl Stage {
    /// Sends patches at the same moment, and compares the settings with each order of the accepted ones.
    pub(crate) async fn change(&self, patches: Vec<Patch>) {
        let before = self.admin.settings().await;
        let sent: Vec<_> = patches
            .into_iter()
            .enumerate()
            .map(|(place, (model, patch))| {
                let admin = self.admin.clone();
                tokio::spawn(async move {
                    // Not always in the order in which they were sent.
                    for _ in 0..patch.to_string().len() % (place + 2) {
                        tokio::task::yield_now().await;
                    }
                    admin.patch(model, &patch).await.then_some((model, patch))
                })
            })
            .collect();
        let mut accepted = Vec::new();
        for sent in sent {
            accepted.extend(sent.await.expect("a change of settings does not panic"));
        }
        let after = self.admin.settings().await;
        let mut truth = self.world.0.lock();
        let found = settings(&after);
        let mut orders = orders(&accepted).into_iter();
        if !orders.any(|order| found.is_some() && settings(&after_all(&before, &order)) == found) {
            truth.breach("settings converge", || format!("{after}, from {before} by {accepted:?}"));
        }
        self.stands(&mut truth, &after, false);
        note(&mut truth, &after, self.models);
    }
}

/// Requested settings; the effective ones also depend on models, which may arrive at any time.
fn settings(shown: &Value) -> Option<Settings> {
    let read = |value: &Value| serde_json::from_value(value.clone()).ok();
    let models = shown["models"].as_object()?.iter();
    let models = models.map(|(name, own)| Some((name.clone(), read(own)?)));
    Some((read(&shown["dispatch"])?, models.collect::<Option<_>>()?))
}

fn after_all(before: &Value, patches: &[Patch]) -> Value {
    let mut settings = before.clone();
    for (model, patch) in patches {
        match model.map(|model| Model::Asked(model).name()) {
            None => settings["dispatch"] = merged(&settings["dispatch"], patch),
            Some(name) => {
                let own = &settings["models"][&name];
                let own = if own.is_object() { own } else { &settings["dispatch"] };
                settings["models"][&name] = merged(own, patch);
            }
        }
    }
    settings
}

/// All orders of a few patches.
fn orders(patches: &[Patch]) -> Vec<Vec<Patch>> {
    if patches.is_empty() {
        return vec![Vec::new()];
    }
    let begun_with = |first: usize| {
        let mut others = patches.to_vec();
        let first = others.remove(first);
        orders(&others).into_iter().map(move |rest| [vec![first.clone()], rest].concat())
    };
    (0..patches.len()).flat_map(begun_with).collect()
}
