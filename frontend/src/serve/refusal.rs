//! From the dispatcher's reasons to the protocol's errors.

use std::time::Duration;

use parm_dispatch::Reject;
use parm_protocol::{Code, Error};

use super::ledger::Failed;
use super::pool::Pool;

/// What the client of a failed request is told.
pub(super) fn error(pool: &Pool, failed: Failed, waited: Duration, retry_after: Duration) -> Error {
    let model = &pool.model.name;
    match (failed.why, failed.last) {
        (Reject::QueueFull, _) => Error::Overloaded {
            message: format!("the queue of model '{model}' is full: try again later, or add instances"),
            retry_after,
        },
        (Reject::Overload, _) => Error::Overloaded {
            message: format!(
                "more waits for model '{model}' than its instances do in time: try again later, or add instances"
            ),
            retry_after,
        },
        (Reject::Deadline, _) => Error::DeadlineExceeded { waited },
        (Reject::NoInstance, _) => Error::NoInstance { model: model.clone() },
        (Reject::BadQuery, Some(last)) => last,
        (Reject::Failed, Some(last)) => {
            // A client can do nothing about what one instance says of load or of its models.
            let code = match last.code() {
                Code::Internal => Code::Internal,
                _ => Code::Unavailable,
            };
            Error::Remote { code, message: format!("every attempt failed, the last with: {last}") }
        }
        (Reject::Failed | Reject::BadQuery, None) => Error::Unavailable {
            message: format!("model '{model}' could not be run by any instance: check the instances' health"),
        },
    }
}
