//! `parm record`: records the traffic of a running frontend as JSON lines, and summarizes a recording.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use hyper::Method;
use parm_lab::simulator::Progress;
use parm_lab::tuner::{Profile, Recording};
use parm_transport::client::Hearing;
use serde_json::json;

use crate::Failure;
use crate::admin::{Admin, Identity, block_on};
use crate::cli::Output;
use crate::progress::Bar;

pub const EXAMPLES: &str = "Examples:
  parm serve --models models --admin 127.0.0.1:8003
  parm record --frontend http://127.0.0.1:8003 --seconds 600 --file busy-hour.jsonl
      ten minutes
  parm record --summary busy-hour.jsonl
      the contents of a recording and its faults
  parm serve --models models --record all-day.jsonl
      from the start of a frontend";

/// `parm record`.
#[derive(Debug, Args)]
pub struct Record {
    /// Address of the frontend's admin API: http://HOST:PORT or https://HOST:PORT
    #[arg(long, value_name = "URL", required_unless_present = "summary")]
    pub frontend: Option<String>,
    /// Key for the admin API, of the role read or control
    #[arg(long, value_name = "KEY", env = "PARM_KEY", hide_env_values = true)]
    pub key: Option<String>,
    #[command(flatten)]
    pub identity: Identity,
    /// Length in seconds
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// File to write, which must not exist
    #[arg(long, value_name = "FILE", default_value = "recording.jsonl")]
    pub file: PathBuf,
    /// Summarize this recording, without recording
    #[arg(long, value_name = "FILE", conflicts_with_all = ["frontend", "file"])]
    pub summary: Option<PathBuf>,
    /// Model to summarize, if the recording has several
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// Time after the end of the recording at which the frontend counts as hung: it sends lines every half second.
const SLACK: Duration = Duration::from_secs(10);

/// Runs the command.
pub fn main(flags: &Record) -> Result<(), Failure> {
    let path = match (&flags.summary, &flags.frontend) {
        (Some(path), _) => path,
        (None, Some(url)) => {
            let admin = Admin::at(url, flags.key.clone(), &flags.identity).context("--frontend");
            let admin = admin.map_err(Failure::Configuration)?;
            block_on(record(flags, &admin))?;
            &flags.file
        }
        (None, None) => return Err(Failure::Configuration(anyhow!("give --frontend URL or --summary FILE"))),
    };
    summary(path, flags)?;
    Ok(())
}

async fn record(flags: &Record, admin: &Admin) -> anyhow::Result<()> {
    let path = &flags.file;
    let body = ask(flags.seconds, admin).await?;
    let file = fs::File::create_new(path)
        .with_context(|| format!("cannot make {}: name another file with --file", path.display()))?;
    let mut file = BufWriter::new(file);
    let copied = copy(body, flags.seconds, &mut file).await;
    let flushed = file.flush().with_context(|| format!("cannot write {}", path.display()));
    copied.with_context(|| format!("{} holds the data so far", path.display())).and(flushed)
}

/// Records a running frontend for some seconds.
pub async fn stream(admin: &Admin, seconds: u64, to: &mut impl Write) -> anyhow::Result<()> {
    copy(ask(seconds, admin).await?, seconds, to).await
}

/// Copies a recording, until it ends or the user ends it: it is valid at any time.
async fn copy(mut body: Hearing, seconds: u64, to: &mut impl Write) -> anyhow::Result<()> {
    let bar = Bar::spinner("bytes recorded");
    let limit = tokio::time::sleep(Duration::from_secs(seconds) + SLACK);
    tokio::pin!(limit);
    loop {
        let chunk = tokio::select! {
            chunk = body.chunk() => chunk,
            _ = tokio::signal::ctrl_c() => break,
            () = &mut limit => bail!("the frontend does not end the recording"),
        };
        let Some(data) = chunk.context("the frontend closed the connection")? else { break };
        to.write_all(&data).context("cannot write the recording")?;
        bar.advanced(data.len() as u64);
    }
    drop(bar);
    Ok(())
}

/// Starts the recording. The admin API answers once it has the first lines.
async fn ask(seconds: u64, admin: &Admin) -> anyhow::Result<Hearing> {
    let path = format!("/admin/v1/recording?seconds={seconds}");
    admin.ask(Method::GET, &path, None).await
}

/// Prints a summary of a recording. Too little data for a profile is not an error: the arrivals may suffice.
fn summary(path: &Path, flags: &Record) -> Result<(), Failure> {
    let recording = read(path, flags.model.as_deref())?;
    let profile = parm_lab::tuner::fit(&recording);
    let described = described(&recording, profile.as_ref().ok());
    Ok(crate::printer::print(flags.output, &described, || worded(&recording, &profile))?)
}

/// Reads a recording.
pub fn read(path: &Path, model: Option<&str>) -> anyhow::Result<Recording> {
    ensure!(!path.is_dir(), "{} is a folder: name the file of a recording", path.display());
    let file = fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Recording::read(std::io::BufReader::new(file), model).with_context(|| path.display().to_string())
}

/// Derives the profile of a recording, and prints it on stderr.
pub fn profile(recording: &Recording, named: &str) -> anyhow::Result<Profile> {
    let profile = parm_lab::tuner::fit(recording).with_context(|| named.to_owned())?;
    if let Some(merged) = recording.merged() {
        eprintln!("{named}: {merged}");
    }
    eprintln!("{named}: {profile}");
    Ok(profile)
}

fn worded(recording: &Recording, profile: &Result<Profile, parm_lab::Error>) -> String {
    let count = recording.arrivals.len();
    let rate = count as f64 / recording.seconds.max(1e-9);
    let mut text = format!(
        "{count} queries of model '{}' in {:.1} s ({rate:.1} per second)",
        recording.title, recording.seconds
    );
    if let Some(merged) = recording.merged() {
        text.push_str(&format!("\n{merged}"));
    }
    match profile {
        Ok(profile) => text.push_str(&format!("\n{profile}")),
        Err(error) => text.push_str(&format!("\nnot enough data for a profile: {error}")),
    }
    if recording.dropped > 0 {
        text.push_str(&format!("\n{} events were lost: raise frontend.recording.buffer", recording.dropped));
    }
    if recording.unfinished {
        text.push_str(
            "\nnote: the recording has no end: its frontend still runs, was killed, or could not write",
        );
    }
    text
}

fn described(recording: &Recording, profile: Option<&Profile>) -> serde_json::Value {
    json!({
        "model": recording.model,
        "versions": recording.versions,
        "seconds": recording.seconds,
        "queries": recording.arrivals.len(),
        "jobs": recording.jobs.len(),
        "instances": recording.instances,
        "dropped": recording.dropped,
        "unfinished": recording.unfinished,
        "profile": profile.map(|profile| json!({
            "service_ms": profile.service.time_ms.mean(),
            "row_share": profile.service.row_share,
            "stragglers": profile.stragglers.as_ref().map(|s| json!({"share": s.share, "median_factor": s.median_factor})),
            "interference": profile.interference,
            "hangs": profile.hangs,
            "lasting": profile.lasting,
            "follows_queries": profile.lengths,
            "failed": profile.failed,
        })),
    })
}
