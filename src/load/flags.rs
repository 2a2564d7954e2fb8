//! The flags of `parm load`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use parm_loadgen::requirement::Requirement;
use parm_loadgen::shape::Shape;

use crate::admin::Identity;
use crate::cli::Output;

/// `parm load`.
#[derive(Debug, Args)]
pub struct Load {
    /// Server: http://HOST:PORT, grpc://HOST:PORT, unix:/PATH, frames:// or frames+unix:; with TLS https://, grpcs:// or
    /// frames+tls://
    pub url: String,
    /// Model
    #[arg(long, value_name = "NAME")]
    pub model: String,
    #[command(flatten)]
    pub openai: OpenAi,
    /// Key for the server
    #[arg(long, value_name = "KEY", env = "PARM_KEY", hide_env_values = true)]
    pub key: Option<String>,
    #[command(flatten)]
    pub identity: Identity,
    /// Load scenario, as in MLPerf
    #[arg(long, value_enum, default_value_t = Scenario::Server)]
    pub scenario: Scenario,
    /// Requests per second, including pauses of bursts (server scenario)
    #[arg(long, default_value_t = 10.0, value_parser = rate)]
    pub rate: f64,
    /// Arrival process: constant, poisson, gamma:CV (coefficient of variation of the gaps), bursts:ON/OFF such as
    /// bursts:200ms/800ms, or trace:FILE (seconds since the start, one a line, instead of --rate; with --openai CSV with
    /// timestamp_ms,input_tokens,output_tokens)
    #[arg(long, value_name = "SHAPE", default_value = "poisson")]
    pub arrivals: Shape,
    /// Requests at a time (offline scenario) [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub streams: Option<u32>,
    /// Length of the measurement in seconds [default: 10; a trace of --openai: all of it]
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Warm-up before the measurement in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub warm_up: f64,
    /// Rows in a request [default: 1; multi-stream scenario: 8]
    #[arg(long, value_name = "N")]
    pub rows: Option<NonZeroUsize>,
    /// Rows to send in turn, from an npy or idx file, plain or gzipped; INPUT=FILE for models with several inputs (repeat)
    /// [default: random rows]
    #[arg(long, value_name = "[INPUT=]FILE")]
    pub input: Vec<String>,
    /// Class of every row, from an npy or idx file, for the accuracy of each outcome
    #[arg(long, value_name = "FILE", requires = "input")]
    pub labels: Option<PathBuf>,
    /// Output with the class, if the model has several
    #[arg(long, value_name = "OUTPUT", requires = "labels")]
    pub label_output: Option<String>,
    /// Timeout of a request in milliseconds; requests without an answer count with it [default: 10000; with --openai: 600000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=31_536_000_000))]
    pub deadline_ms: Option<u64>,
    /// Threads for connections, next to that of the schedule
    #[arg(long, value_name = "N", default_value = "1")]
    pub threads: NonZeroUsize,
    /// Seed of arrivals and random rows
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Threshold that must hold (repeat): p99.9<=20ms (at 95 % confidence; with --openai of the time to first token),
    /// failed<=0.1%, accuracy>=95%
    #[arg(long, value_name = "THRESHOLD")]
    pub require: Vec<Requirement>,
    /// Failures that make the run invalid, in percent of the requests
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    pub allow_failed: f64,
    /// File for every counted request, as CSV: scheduled time, latency, lag, outcome
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,
    /// No progress on stderr
    #[arg(long)]
    pub quiet: bool,
    /// Form of the output; docs/load.schema.json describes the JSON
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Load for servers of language models.
#[derive(Debug, Args)]
pub struct OpenAi {
    /// Send chats of OpenAI's API instead, answered as streams. Reports the time to first token
    #[arg(long = "openai", conflicts_with_all = ["rows", "input", "labels", "label_output", "streams"])]
    pub chat: bool,
    /// Tokens of each prompt, of four bytes each
    #[arg(long, value_name = "N", default_value_t = 512, requires = "chat", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub prompt_tokens: u32,
    /// Tokens of each answer
    #[arg(long, value_name = "N", default_value_t = 128, requires = "chat", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub output_tokens: u32,
    /// Replay a trace this many times as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "chat", value_parser = rate)]
    pub speed: f64,
    /// Further fields of each request, such as '{"ignore_eos": true}'
    #[arg(long, value_name = "JSON", requires = "chat", value_parser = object)]
    pub extra_body: Option<Object>,
}

/// A JSON object.
#[derive(Clone, Debug, Default)]
pub struct Object(pub serde_json::Map<String, serde_json::Value>);

/// Load scenarios, as in MLPerf's inference benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Requests on a schedule (open loop), as users of a service send them
    Server,
    /// One request at a time
    SingleStream,
    /// One request of several rows at a time
    MultiStream,
    /// A fixed number of requests at a time, for the throughput
    Offline,
}

impl Scenario {
    /// Its name as a value of the flag.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Load {
    /// Returns the length of the run, including the warm-up.
    pub fn length(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up + self.seconds.unwrap_or(10.0))
    }

    pub fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up)
    }

    pub fn deadline(&self) -> Duration {
        let usual = if self.openai.chat { 600_000 } else { 10_000 };
        Duration::from_millis(self.deadline_ms.unwrap_or(usual))
    }

    pub fn rows(&self) -> usize {
        let usual = if self.scenario == Scenario::MultiStream { 8 } else { 1 };
        self.rows.map_or(usual, NonZeroUsize::get)
    }

    /// Requests at a time, for scenarios in which the next request waits for an answer.
    pub fn streams(&self) -> usize {
        match self.scenario {
            Scenario::Offline => self.streams.map_or(16, |streams| streams as usize),
            Scenario::Server | Scenario::SingleStream | Scenario::MultiStream => 1,
        }
    }
}

fn object(text: &str) -> Result<Object, String> {
    let object = serde_json::from_str(text).map_err(|error| format!("give a JSON object: {error}"));
    object.map(Object)
}

fn rate(text: &str) -> Result<f64, String> {
    number(text).filter(|rate| *rate > 0.0).ok_or_else(|| "give a number above 0".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    number(text).filter(|seconds| *seconds <= 1e6).ok_or_else(|| "give seconds, from 0 to 1000000".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    number(text).filter(|percent| *percent <= 100.0).ok_or_else(|| "give percent, from 0 to 100".to_owned())
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
}
