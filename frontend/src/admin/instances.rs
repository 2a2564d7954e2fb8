//! Instances: list, add, remove, drain, undrain, eject.

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use parm_protocol::Place;
use parm_transport::keys::Caller;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use crate::console::{Happening, Kind, hundredths, reason_of};
use crate::discovery::{self, Member, MemberReading, Source, Wish};
use crate::serve::{Frontend, Pool, Quantiles};

/// An instance in a list.
#[derive(Serialize)]
pub(super) struct Entry {
    number: u32,
    address: String,
    source: Source,
    /// Card, node and zone, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    card: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    /// `connecting`, `ready`, `draining`, `ejected` or `refused`.
    state: discovery::MemberState,
    /// Whether it receives work: a ready instance that the dispatcher has ejected does not.
    in_service: bool,
    /// What is wrong with it, also while it receives work; `order` if an operator ejected it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    inflight: u32,
    models: Vec<ServedModel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_time: Option<Quantiles>,
    /// How many times as long as at the median instance a run takes, if its measured speed differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    slower: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Serialize)]
struct ServedModel {
    name: String,
    version: String,
    /// Whether it receives work of this model: an instance may be ejected for a single model.
    in_service: bool,
}

/// An instance to add.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    url: String,
}

/// An operator's order to an instance.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Order {
    /// Send no more work; jobs in progress finish.
    Drain,
    /// Send work again after a drain or an ejection.
    Undrain,
    /// Retry its work elsewhere at once.
    Eject,
}

pub(super) async fn list(State(frontend): State<Frontend>) -> Json<Vec<Entry>> {
    let all = frontend.fleet.readings();
    Json(all.iter().map(|own| of(&frontend, own)).collect())
}

pub(super) async fn show(
    State(frontend): State<Frontend>,
    number: Result<Path<u32>, PathRejection>,
) -> Result<Json<Entry>, Refusal> {
    let Path(number) = number?;
    Ok(Json(entry(&frontend, &frontend.fleet.member(number)?)))
}

pub(super) async fn add(
    State(frontend): State<Frontend>,
    new: Result<Json<New>, JsonRejection>,
) -> Result<(StatusCode, Json<Entry>), Refusal> {
    let Json(New { url }) = new?;
    let added = frontend.fleet.add(&frontend.fleet.as_typed(&url), Source::Admin, Place::default());
    let member = added.map_err(|error| error.with_url(&url))?;
    Ok((StatusCode::CREATED, Json(entry(&frontend, &member))))
}

pub(super) async fn remove(
    State(frontend): State<Frontend>,
    number: Result<Path<u32>, PathRejection>,
) -> Result<(StatusCode, Json<Entry>), Refusal> {
    let Path(number) = number?;
    let member = frontend.fleet.remove(number)?;
    // Draining starts now; the response does not wait for its end.
    Ok((StatusCode::ACCEPTED, Json(entry(&frontend, &member))))
}

pub(super) async fn order(
    State(frontend): State<Frontend>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<(u32, Order)>, PathRejection>,
) -> Result<(StatusCode, Json<Entry>), Refusal> {
    let Path((number, order)) = path?;
    let member = frontend.fleet.member(number)?;
    let (wish, kind) = match order {
        Order::Drain => (Wish::Drain, Kind::Draining),
        Order::Undrain => (Wish::Serve, Kind::Returned),
        Order::Eject => (Wish::Eject, Kind::Ejected),
    };
    member.wishes(wish);
    let by = caller.name();
    tracing::info!(instance = %member.name, ?order, by = by.as_deref().unwrap_or("-"), "instance received an order");
    let text = "by order".to_owned();
    frontend.core.driver.tell(kind, Happening { instance: Some(number), model: None, text, by });
    Ok((StatusCode::ACCEPTED, Json(entry(&frontend, &member))))
}

fn entry(frontend: &Frontend, member: &Arc<Member>) -> Entry {
    let read = |id| frontend.core.driver.instance(id);
    of(frontend, &MemberReading::new(member.clone(), member.view(), read))
}

fn of(frontend: &Frontend, own: &MemberReading) -> Entry {
    let instance = own.view.instance.as_deref();
    let pools = instance.map(|instance| instance.pools()).unwrap_or_default();
    let driver = &frontend.core.driver;
    let model = |pool: &Arc<Pool>| ServedModel {
        name: pool.model.name.clone(),
        version: pool.version.clone(),
        in_service: instance.is_some_and(|instance| driver.takes(instance.id, pool.id)),
    };
    let Place { card, node, zone } = own.member.place();
    Entry {
        number: own.member.number,
        address: own.member.name.clone(),
        source: own.member.source,
        card,
        node,
        zone,
        state: own.view.state,
        in_service: own.in_service(),
        reason: reason_of(own),
        inflight: instance.map_or(0, |instance| instance.inflight()),
        models: pools.iter().map(model).collect(),
        service_time: instance.and_then(|instance| instance.quantiles()),
        slower: own.reading.and_then(|reading| reading.slower).map(hundredths),
        problem: own.problem(),
    }
}
