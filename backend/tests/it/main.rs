//! The backend from outside: models on disk, requests in, predictions out.

mod batching;
mod engines;
mod queueing;
mod repository;
mod support;
mod tokens;
mod worker;
