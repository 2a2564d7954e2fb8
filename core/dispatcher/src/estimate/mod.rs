//! Estimates from the runs that ended: how long a run of a model takes ([`Times`]) for its work ([`Sizes`]), how much slower
//! one instance is ([`Speed`]), how much longer a run of some age lasts ([`Rest`]), how many jobs a server runs best at a time
//! ([`Concurrency`]), and how many queries arrive ([`Rate`]).

mod concurrency;
mod rate;
mod rest;
mod sizes;
mod speed;
mod times;

pub(crate) use concurrency::Concurrency;
pub(crate) use rate::Rate;
pub(crate) use rest::Rest;
pub(crate) use sizes::Sizes;
pub(crate) use speed::Speed;
pub(crate) use times::Times;
