//! The flags of `parm load`.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use parm_loadgen::requirement::Requirement;
use parm_loadgen::shape::Shape;

use crate::cli::Output;
use crate::cli::identity::Identity;

/// `parm load`.
#[derive(Debug, Args)]
pub struct Load {
    /// Server: http://HOST:PORT, grpc://HOST:PORT or unix:/PATH (frames:// and frames+unix: for parm's own transport); with
    /// TLS https://, grpcs:// and frames+tls://
    pub url: String,
    /// Model to ask
    #[arg(long, value_name = "NAME")]
    pub model: String,
    /// A key that the server knows
    #[arg(long, value_name = "KEY", env = "PARM_KEY", hide_env_values = true)]
    pub key: Option<String>,
    #[command(flatten)]
    pub identity: Identity,
    /// How requests are sent
    #[arg(long, value_enum, default_value_t = Scenario::Server)]
    pub scenario: Scenario,
    /// Requests per second, pauses of bursts included (server scenario)
    #[arg(long, default_value_t = 10.0, value_parser = rate)]
    pub rate: f64,
    /// How arrivals are spread: constant, poisson, gamma:CV (CV is the standard deviation of the gaps over their mean),
    /// bursts:ON/OFF (as in bursts:200ms/800ms), trace:FILE (seconds since the start, one a line, instead of --rate)
    #[arg(long, value_name = "SHAPE", default_value = "poisson")]
    pub arrivals: Shape,
    /// Requests at a time in the offline scenario [default: 16]
    #[arg(long, value_name = "N")]
    pub streams: Option<NonZeroUsize>,
    /// Counted length of the run in seconds
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    /// Seconds at the start whose requests are not counted, while connections, caches and queues settle
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub warm_up: f64,
    /// Rows in a request [default: 1, in the multi-stream scenario 8]
    #[arg(long, value_name = "N")]
    pub rows: Option<NonZeroUsize>,
    /// Rows to send, from an npy or idx file (plain or gzipped), first to last and round again; INPUT=FILE where the model
    /// has several inputs (repeat) [default: made up from the model's metadata]
    #[arg(long, value_name = "[INPUT=]FILE")]
    pub input: Vec<String>,
    /// The right class of every row, from an npy or idx file: answers are graded, by outcome
    #[arg(long, value_name = "FILE", requires = "input")]
    pub labels: Option<PathBuf>,
    /// The output that tells the class, where the model has several
    #[arg(long, value_name = "OUTPUT", requires = "labels")]
    pub label_output: Option<String>,
    /// Milliseconds that a request may take; one without an answer counts as this late
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=31_536_000_000))]
    pub deadline_ms: u64,
    /// Most requests that wait for an answer (server scenario); further ones are dropped and counted
    #[arg(long, value_name = "N", default_value = "10000")]
    pub in_flight: NonZeroU32,
    /// Threads that drive the connections, beside the one that keeps the schedule
    #[arg(long, value_name = "N", default_value = "1")]
    pub threads: NonZeroUsize,
    /// Seed of arrivals and made-up rows: the same seed sends the same load
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A threshold that must be shown to hold (repeat): p99.9<=20ms (at 95 % confidence), failed<=0.1%, accuracy>=95%
    #[arg(long, value_name = "THRESHOLD")]
    pub require: Vec<Requirement>,
    /// Percent of the requests that may fail before the run is called invalid
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    pub allow_failed: f64,
    /// Write every counted request as a line of CSV: intended send time, latency, lag, outcome
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,
    /// Show nothing on stderr while running
    #[arg(long)]
    pub quiet: bool,
    /// `text` for people, `json` for programs (docs/load.schema.json)
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// How requests are sent, as in MLPerf's inference benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// On a schedule, whether or not earlier requests are answered (open loop): what users of a service do
    Server,
    /// One request at a time: the latency of one
    SingleStream,
    /// One request of several rows at a time
    MultiStream,
    /// Always the same number of requests at a time: how much a server can do
    Offline,
}

impl Scenario {
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Server => "server",
            Scenario::SingleStream => "single-stream",
            Scenario::MultiStream => "multi-stream",
            Scenario::Offline => "offline",
        }
    }
}

impl Load {
    /// Warm-up included.
    pub fn length(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up + self.seconds)
    }

    pub fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up)
    }

    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    pub fn rows(&self) -> usize {
        let usual = if self.scenario == Scenario::MultiStream { 8 } else { 1 };
        self.rows.map_or(usual, NonZeroUsize::get)
    }

    /// Requests at a time where the next waits for an answer.
    pub fn streams(&self) -> usize {
        match self.scenario {
            Scenario::Offline => self.streams.map_or(16, NonZeroUsize::get),
            Scenario::Server | Scenario::SingleStream | Scenario::MultiStream => 1,
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    number(text).filter(|rate| *rate > 0.0).ok_or_else(|| "give requests per second, above 0".to_owned())
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
