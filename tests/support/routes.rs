//! Every route of every listener, from the tables of the crates that serve them.

use parm_transport::keys::{GRPC, METRICS, REST, Route};

/// All rows.
pub fn routes() -> impl Iterator<Item = &'static Route> {
    let tables = [REST, GRPC, METRICS, parm_backend::faults::ROUTES, parm_frontend::admin::ROUTES];
    tables.into_iter().flatten()
}
