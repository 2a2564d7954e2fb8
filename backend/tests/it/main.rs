//! Tests of the backend through the public API: models on disk, requests in, predictions out.

mod batching;
mod chat;
mod engines;
mod grants;
mod queueing;
mod repository;
mod support;
mod texts;
mod worker;
