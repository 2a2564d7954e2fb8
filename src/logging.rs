//! Logs to stderr, human or JSON; spans to an OpenTelemetry collector where one is named.
//!
//! Spans of the request path are of level `debug` and targets `parm_*::trace`: without a collector the filter below
//! disables them at their call sites, so that they cost nothing.

use std::io::IsTerminal;

use anyhow::Context;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people; coloured on a terminal unless `NO_COLOR` is set.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// Settings of logs and traces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `human` or `json`. Default: human.
    pub format: Format,
    /// What is logged, in `RUST_LOG`'s language (`info`, `warn,parm_frontend=debug`). Default: info.
    pub level: String,
    /// gRPC address of an OpenTelemetry collector (`http://host:4317`); spans are exported only when it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<String>,
    /// Share of traces that start here and are kept, 0 to 1; traces that a client started follow its choice. Default: 1.
    pub otlp_sample: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { format: Format::Human, level: "info".into(), otlp: None, otlp_sample: 1.0 }
    }
}

/// Keeps the exporter alive; flushes what is left when dropped.
#[derive(Debug, Default)]
pub struct Guard(Option<SdkTracerProvider>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(provider) = &self.0
            && let Err(error) = provider.shutdown()
        {
            tracing::warn!(%error, "some spans were not exported");
        }
    }
}

/// Installs logging for the process. Must be called inside the runtime when a collector is named.
pub fn install(config: &Config, service: &'static str) -> anyhow::Result<Guard> {
    let filter = EnvFilter::try_new(&config.level)
        .with_context(|| format!("log.level: cannot read '{}' as a log filter", config.level))?;
    let colour = std::io::stderr().is_terminal() && !crate::environment::no_color();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colour);
    let lines = match config.format {
        Format::Human => lines.with_target(false).boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    let provider =
        config.otlp.as_deref().map(|url| exporter(url, config.otlp_sample, service)).transpose()?;
    let spans = provider.as_ref().map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("parm"))
            .with_filter(Targets::new().with_target("parm", LevelFilter::DEBUG))
    });
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(spans).init();
    Ok(Guard(provider))
}

fn exporter(url: &str, sample: f64, service: &'static str) -> anyhow::Result<SdkTracerProvider> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(url)
        .build()
        .with_context(|| format!("log.otlp: cannot export spans to '{url}'"))?;
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(sample))))
        .with_resource(Resource::builder().with_service_name(service).build())
        .build())
}
