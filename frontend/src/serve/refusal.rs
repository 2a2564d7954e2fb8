//! Conversion of the dispatcher's reject reasons to the protocol's errors.

use std::time::Duration;

use parm_dispatcher::Reject;
use parm_protocol::Error;

use super::call::Failed;
use super::pool::Pool;

/// The error for the client of a failed request.
pub(super) fn error(pool: &Pool, failed: Failed, waited: Duration, retry_after: Duration) -> Error {
    let model = &pool.model.name;
    match (failed.why, failed.last) {
        (Reject::QueueFull, _) => Error::Overloaded {
            message: format!(
                "model '{model}' is overloaded: its queue is full: try again later, or add instances"
            ),
            retry_after,
        },
        (Reject::Overload, _) => Error::Overloaded {
            message: format!(
                "model '{model}' is overloaded: the query would miss its deadline: try again later, or add instances"
            ),
            retry_after,
        },
        (Reject::Deadline, _) => Error::DeadlineExceeded { waited },
        (Reject::NoInstance, _) => Error::NoInstance { model: model.clone() },
        (Reject::BadQuery, Some(last)) => last,
        (Reject::Failed(_), Some(last)) => Error::Attempts { last: Box::new(last) },
        (Reject::Failed(_) | Reject::BadQuery, None) => Error::Unavailable {
            message: format!("no instance could run model '{model}': check the instances' health"),
        },
    }
}
