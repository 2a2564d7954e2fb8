//! Statistics and budgets of the dispatcher.
//!
//! Every type here knows times and settings only, never a query, a job or an instance. So each can be read and
//! tested alone.

pub(crate) mod alone;
pub(crate) mod arrivals;
pub(crate) mod bound;
pub(crate) mod budget;
pub(crate) mod concurrency;
pub(crate) mod cost;
pub(crate) mod curve;
pub(crate) mod deadlines;
pub(crate) mod doubt;
pub(crate) mod health;
pub(crate) mod load;
pub(crate) mod pace;
pub(crate) mod padding;
pub(crate) mod quantile;
pub(crate) mod rest;
pub(crate) mod speed;
pub(crate) mod timed;
pub(crate) mod window;
