//! The routes of every listener, from the tables of the crates that serve them.

use parm_transport::keys::{GRPC, METRICS, REST, Route};

/// The routes of `parm serve`.
pub fn of_a_frontend() -> impl Iterator<Item = &'static Route> {
    [REST, GRPC, METRICS, &parm_frontend::admin::ROUTES].into_iter().flatten()
}

/// The routes of `parm worker --faults --emulate-chat NAME`.
pub fn of_a_worker() -> impl Iterator<Item = &'static Route> {
    [REST, GRPC, METRICS, parm_backend::faults::ROUTES, parm_backend::chat::ROUTES].into_iter().flatten()
}
