//! The routes of the fault page and the access that each requires.

use parm_transport::keys::{Access, Method, Route};

/// `/faults`, at the metrics address of a worker.
pub static ROUTES: &[Route] = &[
    Route::page(Method::GET, "/faults", Access::Read),
    Route::page(Method::POST, "/faults", Access::Control),
    Route::page(Method::PUT, "/faults", Access::Control),
];
