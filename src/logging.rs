//! Logs to stderr as text or JSON, and spans to an OpenTelemetry collector.
//!
//! Spans of the request path are of level `debug` and targets `parm_*::trace`: without a collector the filter below
//! disables them at their call sites, so that they cost nothing.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::{self, Write as _};
use std::io::IsTerminal;

use anyhow::Context;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use parm_settings::Fraction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Text; coloured on a terminal unless `NO_COLOR` is set.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// Settings of logs and traces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Format of log lines. Default: human.
    pub format: Format,
    /// Filter of log lines, written as `RUST_LOG`, such as `warn,parm_frontend=debug`. Default: info.
    pub level: String,
    /// Address of an OpenTelemetry collector for spans, such as `http://host:4317` (gRPC). Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<String>,
    /// Share of the traces that is exported. Traces of clients follow the client's choice. Default: 1.
    pub otlp_sample: Fraction,
}

impl Default for Config {
    fn default() -> Self {
        Self { format: Format::Human, level: "info".into(), otlp: None, otlp_sample: Fraction::percent(100) }
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
    let filter = filter(&config.level)?;
    let colour = std::io::stderr().is_terminal() && !crate::environment::no_color();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colour);
    let lines = match config.format {
        Format::Human => lines.with_target(false).fmt_fields(fields()).boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    let provider =
        config.otlp.as_deref().map(|url| exporter(url, config.otlp_sample.get(), service)).transpose()?;
    let spans = provider.as_ref().map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("parm"))
            .with_filter(Targets::new().with_target("parm", LevelFilter::DEBUG))
    });
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(spans).init();
    if config.format == Format::Json {
        log_panics();
    }
    Ok(Guard(provider))
}

/// Logs each panic, also those of engines that are survived, in place of Rust's own text on stderr.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let trace = Backtrace::capture();
        let trace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
        tracing::error!(%panic, backtrace = trace, "panicked");
    }));
}

/// Does work whose panics become errors in a report, without Rust's text about them. Only for commands with one thread.
pub fn without_panic_texts<T>(work: impl FnOnce() -> T) -> T {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let done = work();
    std::panic::set_hook(usual);
    done
}

/// Makes the filter of log lines. tract's own lines are left out unless the level names it.
fn filter(level: &str) -> anyhow::Result<EnvFilter> {
    let named = || format!("log.level: cannot read '{level}' as a log filter");
    let filter = EnvFilter::try_new(level).with_context(named)?;
    if level.contains("tract") {
        return Ok(filter);
    }
    // It warns of each model whose operator set is newer than its own, and runs most of them. It also states the
    // processor's features.
    Ok(filter.add_directive("tract_onnx=error".parse()?).add_directive("tract_linalg=warn".parse()?))
}

/// Formats fields as `name=value`, after the message. Names and errors may quote a client's text, so characters that are
/// not printable are escaped: a client can neither forge a log line nor send control sequences to a terminal.
fn fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    let field = debug_fn(|writer, field, value| match field.name() {
        "message" => write!(Escaped(writer), "{value:?}"),
        // Lines of the crate `log` have the path of their file on the machine that built it.
        name if name.starts_with("log.") => Ok(()),
        name => {
            write!(writer, "{name}=")?;
            write!(Escaped(writer), "{value:?}")
        }
    });
    field.delimited(" ")
}

/// Writes control characters as Rust escapes.
struct Escaped<'a>(&'a mut dyn fmt::Write);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(tells_a_terminal) {
            let (plain, from) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut characters = from.chars();
            characters.next().into_iter().try_for_each(|it| write!(self.0, "{}", it.escape_default()))?;
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Whether a character is a control character, a line separator or a mark that changes the direction of text.
fn tells_a_terminal(character: char) -> bool {
    let turns =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(character, '\u{2028}' | '\u{2029}');
    character.is_control() || turns || breaks
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Page {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    /// What is logged meanwhile.
    fn written(work: impl FnOnce()) -> String {
        let page = Page::default();
        let lines = tracing_subscriber::fmt::layer().with_writer(page.clone()).with_ansi(false);
        let lines = lines.without_time().with_target(false).fmt_fields(fields());
        let lines = lines.with_filter(filter("info").unwrap());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), work);
        String::from_utf8(page.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn paths_of_the_build_machine_are_left_out() {
        let written = written(|| {
            tracing::info!(log.file = "/build/registry/x.rs", log.line = 7, count = 3, "activated");
            tracing::info!(target: "tract_linalg::x86_64", "features of the processor");
            tracing::warn!(target: "tract_linalg::x86_64", "a fault");
        });
        assert!(written.contains("activated") && written.contains("count=3"), "{written}");
        assert!(!written.contains("/build") && !written.contains("features"), "{written}");
        assert!(written.contains("a fault"), "{written}");
    }

    #[test]
    fn client_text_is_escaped_in_log_lines() {
        let name = "x\n ERROR all is lost\u{1b}[31m\r\u{9b}\u{202e}é";
        let written = written(|| {
            tracing::error!(name, error = %format_args!("no model '{name}'"), count = 3, "model not loaded");
            tracing::info!("response {name}");
        });
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!(lines.len(), 2, "{written}");
        assert!(
            lines[0].contains("model not loaded name=\"x\\n ERROR") && lines[0].contains("count=3"),
            "{written}"
        );
        assert!(
            lines[0].contains(r"error=no model 'x\n ERROR all is lost\u{1b}[31m\r\u{9b}\u{202e}é'"),
            "{written}"
        );
        assert!(lines[1].contains(r"response x\n ERROR all is lost\u{1b}[31m"), "{written}");
    }
}
