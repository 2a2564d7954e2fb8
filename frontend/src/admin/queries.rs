//! Lists the latest kept queries, and tells the story of one.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde_json::{Value, json};

use super::refusal::Refusal;
use crate::console::{Wanted, outcomes, read_name};
use crate::error::Error;
use crate::serve::Frontend;

/// Maximum queries in one response.
const MOST: usize = 1024;

pub(super) async fn list(
    State(frontend): State<Frontend>,
    asked: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Value>, Refusal> {
    let Query(mut wanted) = asked?;
    if let Some(outcome) = wanted.outcome.as_ref().filter(|outcome| !outcomes().any(|name| name == **outcome))
    {
        let known = outcomes().collect::<Vec<_>>().join(", ");
        return Err(Error::UnknownOutcome { outcome: outcome.clone(), known }.into());
    }
    wanted.limit = wanted.limit.min(MOST);
    let driver = &frontend.core.driver;
    let (kept, since, found) = driver.queries(&wanted);
    let since = driver.wall_ms(since.unwrap_or_else(|| driver.now()));
    let queries: Vec<_> = found.iter().map(|query| query.told(driver.wall_ms(query.arrived))).collect();
    Ok(Json(json!({ "kept": kept, "since": since, "queries": queries })))
}

pub(super) async fn show(
    State(frontend): State<Frontend>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    let Path(name) = name?;
    let driver = &frontend.core.driver;
    let found = read_name(&name).and_then(|id| driver.query(id));
    let query = found.ok_or(Error::UnknownQuery { name })?;
    Ok(Json(query.told_whole(driver.wall_ms(query.arrived))))
}
