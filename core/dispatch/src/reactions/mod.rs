//! Reactions: the consequences of each event, one file for each family of events.

pub(crate) mod again;
pub(crate) mod backup;
pub(crate) mod group;
pub(crate) mod instance;
pub(crate) mod job;
pub(crate) mod late;
pub(crate) mod outage;
pub(crate) mod pool;
pub(crate) mod query;
pub(crate) mod rescue;
pub(crate) mod retry;
pub(crate) mod stand_in;
pub(crate) mod timer;
pub(crate) mod tokens;
