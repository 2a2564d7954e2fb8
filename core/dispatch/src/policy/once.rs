//! `once`: a query is sent to one instance, once, and fails with it.
//!
//! For requests that change something: a second run would change it twice. An instance that does not answer may have run
//! the query, so neither a failure nor a timeout is followed by another attempt. An instance that certainly did not get
//! the query does not count as an attempt: another one gets it.

use super::hooks::Policy;

pub(crate) struct Once;

impl Policy for Once {
    fn repeats(&self) -> bool {
        false
    }
}
