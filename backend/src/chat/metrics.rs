//! Metrics of the emulated chat server.

use prometheus::{IntCounter, IntGauge, Opts, Registry};

use crate::Error;

#[derive(Clone, Debug)]
pub(super) struct ChatMetrics {
    pub(super) running: IntGauge,
    pub(super) waiting: IntGauge,
    pub(super) iterations: IntCounter,
    pub(super) output_tokens: IntCounter,
    pub(super) cancelled: IntCounter,
    pub(super) rejected: IntCounter,
}

impl ChatMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, Error> {
        let refused = |error: prometheus::Error| Error::Metrics { message: error.to_string() };
        let gauge = |name: &str, help: &str| {
            let metric = IntGauge::with_opts(Opts::new(name, help)).map_err(refused)?;
            registry.register(Box::new(metric.clone())).map_err(refused)?;
            Ok::<_, Error>(metric)
        };
        let counter = |name: &str, help: &str| {
            let metric = IntCounter::with_opts(Opts::new(name, help)).map_err(refused)?;
            registry.register(Box::new(metric.clone())).map_err(refused)?;
            Ok::<_, Error>(metric)
        };
        Ok(Self {
            running: gauge("parm_chat_running", "Streams of the emulated chat server")?,
            waiting: gauge(
                "parm_chat_waiting",
                "Requests that wait for a stream of the emulated chat server",
            )?,
            iterations: counter("parm_chat_iterations_total", "Iterations of the emulated chat server")?,
            output_tokens: counter(
                "parm_chat_output_tokens_total",
                "Tokens that the emulated chat server gave",
            )?,
            cancelled: counter(
                "parm_chat_cancelled_total",
                "Requests to the emulated chat server whose clients left",
            )?,
            rejected: counter(
                "parm_chat_rejected_total",
                "Requests that the emulated chat server had no place for",
            )?,
        })
    }
}
