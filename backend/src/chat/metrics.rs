//! Metrics of the emulated chat server.

use prometheus::{IntCounter, IntGauge, Opts, Registry};

use crate::Error;

pub(super) struct ChatMetrics {
    pub(super) running: IntGauge,
    pub(super) waiting: IntGauge,
    pub(super) output_tokens: IntCounter,
}

impl ChatMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, Error> {
        let all = || {
            let running = Opts::new("parm_chat_running", "Streams of the emulated chat server");
            let waiting =
                Opts::new("parm_chat_waiting", "Requests that wait for a stream of the emulated chat server");
            let tokens =
                Opts::new("parm_chat_output_tokens_total", "Tokens that the emulated chat server gave");
            let (running, waiting) = (IntGauge::with_opts(running)?, IntGauge::with_opts(waiting)?);
            let output_tokens = IntCounter::with_opts(tokens)?;
            registry.register(Box::new(running.clone()))?;
            registry.register(Box::new(waiting.clone()))?;
            registry.register(Box::new(output_tokens.clone()))?;
            Ok(Self { running, waiting, output_tokens })
        };
        all().map_err(|error: prometheus::Error| Error::Metrics { message: error.to_string() })
    }
}
