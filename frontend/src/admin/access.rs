//! The routes of the admin address and the access that each requires.

use axum::http::Method;
use parm_transport::keys::{Access, Route};

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;

/// Every route; a request without a row is not served.
pub static ROUTES: &[Route] = &[
    Route::admin(GET, "/", Access::Everyone),
    Route::admin(GET, "/page/{name}", Access::Everyone),
    Route::admin(GET, "/admin/v1/instances", Access::Read),
    Route::admin(POST, "/admin/v1/instances", Access::Control),
    Route::admin(GET, "/admin/v1/instances/{number}", Access::Read),
    Route::admin(DELETE, "/admin/v1/instances/{number}", Access::Control),
    Route::admin(POST, "/admin/v1/instances/{number}/{order}", Access::Control),
    Route::admin(GET, "/admin/v1/queries", Access::Read),
    Route::admin(GET, "/admin/v1/queries/{id}", Access::Read),
    Route::admin(GET, "/admin/v1/recording", Access::Read),
    Route::admin(GET, "/admin/v1/shares", Access::Read),
    Route::admin(GET, "/admin/v1/stream", Access::Read),
    Route::admin(GET, "/admin/v1/settings", Access::Read),
    Route::admin(PATCH, "/admin/v1/settings", Access::Control),
    Route::admin(GET, "/admin/v1/settings/{model}", Access::Read),
    Route::admin(PATCH, "/admin/v1/settings/{model}", Access::Control),
    Route::admin(DELETE, "/admin/v1/settings/{model}", Access::Control),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parm_transport::keys;

    use super::super::Api;
    use super::*;

    #[test]
    fn routes_are_those_of_the_router() {
        let served = Api::served().into_iter().map(|(method, path)| (method.to_string(), path));
        let table: BTreeSet<_> = ROUTES.iter().map(|route| (route.method.to_string(), route.path)).collect();
        assert_eq!(served.collect::<BTreeSet<_>>(), table, "ROUTES has a row for every route and no others");
    }

    #[test]
    fn every_row_is_found_before_rows_with_braces() {
        for route in ROUTES {
            let found = keys::find(ROUTES, &route.method, route.path).map(|found| found.path);
            assert_eq!(found, Some(route.path), "an earlier row hides this one");
        }
    }
}
