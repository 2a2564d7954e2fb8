//! The routes of the admin address: what answers each, and the access that each requires.

use std::sync::LazyLock;

use axum::extract::State;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, on};
use axum::{Json, Router};
use parm_shares::Account;
use parm_transport::keys::{Access, Route};
use serde_json::{Value, json};

use super::{instances, page, queries, recording, settings, stream};
use crate::serve::Frontend;
use crate::serve::reading::Payer;

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;

/// Every route; a request without a row is not served.
pub static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| [pages().rows, api().rows].concat());

/// A router under construction, and its rows.
pub(super) struct Routes {
    pub(super) router: Router<Frontend>,
    rows: Vec<Route>,
}

impl Routes {
    fn new() -> Self {
        Self { router: Router::new(), rows: Vec::new() }
    }

    fn on<T: 'static>(
        mut self,
        method: Method,
        path: &'static str,
        access: Access,
        handler: impl Handler<T, Frontend>,
    ) -> Self {
        let filter = MethodFilter::try_from(method.clone()).expect("routes are for ordinary methods");
        self.router = self.router.route(path, on(filter, handler));
        self.rows.push(Route::admin(method, path, access));
        self
    }
}

/// Routes without data.
pub(super) fn pages() -> Routes {
    Routes::new().on(GET, "/", Access::Everyone, page::index).on(
        GET,
        "/page/{name}",
        Access::Everyone,
        page::file,
    )
}

/// Routes without braces stand before routes with them.
pub(super) fn api() -> Routes {
    Routes::new()
        .on(GET, "/admin/v1/instances", Access::Read, instances::list)
        .on(POST, "/admin/v1/instances", Access::Control, instances::add)
        .on(GET, "/admin/v1/instances/{number}", Access::Read, instances::show)
        .on(DELETE, "/admin/v1/instances/{number}", Access::Control, instances::remove)
        .on(POST, "/admin/v1/instances/{number}/{order}", Access::Control, instances::order)
        .on(GET, "/admin/v1/queries", Access::Read, queries::list)
        .on(GET, "/admin/v1/queries/{id}", Access::Read, queries::show)
        .on(GET, "/admin/v1/recording", Access::Read, recording::stream)
        .on(GET, "/admin/v1/shares", Access::Read, shares)
        .on(GET, "/admin/v1/stream", Access::Read, stream::watch)
        .on(GET, "/admin/v1/settings", Access::Read, settings::show)
        .on(PATCH, "/admin/v1/settings", Access::Control, settings::change)
        .on(GET, "/admin/v1/settings/{model}", Access::Read, settings::show_model)
        .on(PATCH, "/admin/v1/settings/{model}", Access::Control, settings::change_model)
        .on(DELETE, "/admin/v1/settings/{model}", Access::Control, settings::forget_model)
}

/// Lists configured shares, and own shares of models that used time.
async fn shares(State(frontend): State<Frontend>) -> Json<Value> {
    let accounts = frontend.core.driver.shared();
    let share = |(_, [share, model], account): &(Payer, [String; 2], Account)| {
        json!({
            "share": (!share.is_empty()).then_some(share),
            "model": (!model.is_empty()).then_some(model),
            "weight": account.terms.weight,
            "reserved": account.terms.reserved,
            "used_s": account.used,
            "entitled_s": account.entitled,
            "waiting": account.waiting,
            "running": account.running,
        })
    };
    Json(Value::Array(accounts.iter().map(share).collect()))
}
