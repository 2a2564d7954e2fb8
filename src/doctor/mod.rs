//! `parm doctor`: says what is wrong, and what to do.
//!
//! What is given decides: a running frontend, a configuration or a model repository are checked ([`running`], [`configured`]),
//! a recording is replayed without one cause of its tail at a time ([`tail`]), and an error's code is explained ([`code`]).
//! Checks print a line each, so that users see what was checked, and a second line with the remedy of a fault. The command
//! ends with status 1 if a check fails. Notes do not fail.

mod asking;
mod code;
mod configured;
mod engine;
mod requests;
mod running;
mod tail;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use parm_protocol::StableCode;
use serde::Serialize;

use crate::Failure;
use crate::admin::{Identity, block_on};
use crate::cli::Output;
use crate::printer::reader_is_gone;

pub const EXAMPLES: &str = "Examples:
  parm doctor http://127.0.0.1:8003
      a running frontend: slow and ejected instances, failing requests, dispatch settings without effect
  parm doctor http://127.0.0.1:8003 --seconds 60
      the causes of its long tail, from a recording of one minute
  parm doctor parm.toml
      a configuration before serving: ports, engine, models, bundles, workers
  parm doctor models
      a model repository: files, bundles, and whether the engine runs each model
  parm doctor busy-hour.jsonl --config parm.toml
      the causes of a recorded tail, with the settings of its frontend
  parm doctor PARM-0007
      the cause and the remedy of an error; parm doctor codes lists all errors";

/// `parm doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Address of a frontend's admin API, configuration file, model repository, recording of `parm record`, or code of an
    /// error [default: http://127.0.0.1:8003]
    #[arg(value_name = "URL | PATH | CODE")]
    pub what: Option<String>,
    /// Record a running frontend for so many seconds, and name the causes of its tail
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
    /// Model of the recording, if it has several
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Configuration of the recorded frontend (TOML), for its dispatch settings
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Policy of the recorded frontend [default: that of a running one, hedge for a file]
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub policy: Option<String>,
    /// Seed of the replays of a recording
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Replays without each cause, with different seeds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: u32,
    /// Key for the admin API
    #[arg(long, value_name = "KEY", env = "PARM_KEY", hide_env_values = true)]
    pub key: Option<String>,
    #[command(flatten)]
    pub identity: Identity,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// The beginning of each recording.
const RECORDING: &[u8] = b"{\"recording\"";

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    verdict: Verdict,
    what: String,
    /// The remedy.
    remedy: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Verdict {
    #[serde(rename = "ok")]
    Well,
    /// It works, but could be better.
    #[serde(rename = "note")]
    Worth,
    #[serde(rename = "fail")]
    Fails,
}

impl Finding {
    fn well(what: impl Into<String>) -> Self {
        Self { verdict: Verdict::Well, what: what.into(), remedy: String::new() }
    }

    fn worth(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Worth, what: what.into(), remedy: remedy.into() }
    }

    fn fails(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fails, what: what.into(), remedy: remedy.into() }
    }
}

/// A fault of the key file, the TLS files, a bundle or a written file.
fn of_file(code: &str, text: &str, fails: bool) -> Finding {
    let is = |known: StableCode| known.name() == code;
    let remedy = match () {
        () if is(StableCode::InvalidBundle) => "correct the path, or make the folder",
        () if is(StableCode::KeyFile) => "correct the file: it is read again without a restart",
        () if is(StableCode::TlsFiles) => {
            "replace certificate and key together: they are read again without a restart"
        }
        () if is(StableCode::RecordingStopped) || is(StableCode::CaptureStopped) => {
            "free disk space or name another place, and restart the frontend"
        }
        () => "issue a new certificate and replace both files: they are read again without a restart",
    };
    let what = format!("files: {text} [{code}]");
    if fails { Finding::fails(what, remedy) } else { Finding::worth(what, remedy) }
}

impl Doctor {
    /// What is given, or the usual address of the admin API.
    fn what(&self) -> &str {
        self.what.as_deref().unwrap_or("http://127.0.0.1:8003")
    }

    fn is_running(&self) -> bool {
        self.what().contains("://")
    }
}

/// Runs the command.
pub fn main(flags: &Doctor) -> Result<(), Failure> {
    let what = flags.what();
    if flags.is_running() {
        return if flags.seconds.is_some() { tail::main(flags) } else { check(flags) };
    }
    if what == "codes" || (code::is_code(what) && !Path::new(what).exists()) {
        return Ok(code::print((what != "codes").then_some(what))?);
    }
    if is_recording(Path::new(what)) { tail::main(flags) } else { check(flags) }
}

/// Checks a frontend, a configuration or a model repository.
fn check(flags: &Doctor) -> Result<(), Failure> {
    let findings = if flags.is_running() {
        block_on(running::look(flags))?
    } else {
        block_on(async { Ok(configured::look(Path::new(flags.what())).await) })?
    };
    let text = match flags.output {
        Output::Text => told(&findings),
        Output::Json => serde_json::to_string_pretty(&findings).map_err(anyhow::Error::from)? + "\n",
    };
    let written = write!(crate::printer::stdout(), "{text}").map_err(anyhow::Error::from);
    // The status is that of the checks also if the reader wants only the first lines.
    written.or_else(|error| if reader_is_gone(&error) { Ok(()) } else { Err(error) })?;
    match findings.iter().filter(|finding| finding.verdict == Verdict::Fails).count() {
        0 => Ok(()),
        1 => Err(anyhow!("1 check failed").into()),
        failed => Err(anyhow!("{failed} checks failed").into()),
    }
}

fn is_recording(path: &Path) -> bool {
    let mut beginning = [0; RECORDING.len()];
    // A pipe would lose what is read.
    let file = path.is_file().then(|| std::fs::File::open(path).ok()).flatten();
    file.is_some_and(|mut file| file.read_exact(&mut beginning).is_ok() && beginning == RECORDING)
}

fn told(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let mark = match finding.verdict {
            Verdict::Well => "ok   ",
            Verdict::Worth => "note ",
            Verdict::Fails => "FAIL ",
        };
        let remedy = match finding.remedy.as_str() {
            "" => String::new(),
            remedy => format!("       {remedy}\n"),
        };
        format!("{mark}{}\n{remedy}", finding.what)
    };
    findings.iter().map(line).collect()
}
