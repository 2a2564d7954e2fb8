//! Inference engines behind one synchronous trait, instances, the worker and its fault injection.
//!
//! Reading order: an [`engine`] loads a model file and runs batches; an `instance` is a thread that runs them from a
//! bounded queue; a `host` manages models and instances and follows the repository. [`Worker`] serves a host over the
//! protocol, [`Embedded`] serves it inside the process. [`chat`] emulates a server of a language model.

pub mod chat;
mod config;
pub mod engine;
mod error;
pub mod faults;
mod host;
mod instance;
mod metrics;
mod pause;
mod worker;

pub use chat::Chat;
pub use config::{Batching, Config, EngineConfig, VersionPolicy};
pub use error::Error;
pub use faults::Faults;
pub use host::{processor, try_file};
pub use metrics::Metrics;
pub use worker::{Embedded, Worker};
