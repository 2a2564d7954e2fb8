//! `parm doctor`: says what is wrong, and what to do.
//!
//! What is given decides: a running frontend, a configuration or a model repository are checked ([`running`], [`configured`]),
//! a recording is replayed without one cause of its tail at a time, and an error's code is explained.
//! Checks print a line each, so that users see what was checked, and a second line with the remedy of a fault. The command
//! ends with status 1 if a check fails. Notes do not fail.

mod configured;
mod requests;
mod running;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;
use hyper::Method;
use parm_lab::tuner::{Recording, Setup, replayed_queries, why};
use parm_protocol::StableCode;
use parm_settings::PoolSettings;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::admin::{Admin, Identity, block_on};
use crate::cli::Output;
use crate::printer::{self, reader_is_gone};
use crate::progress::Bar;
use crate::{Failure, ctl, record};

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
        return if flags.seconds.is_some() { tail(flags) } else { check(flags) };
    }
    if what == "codes" || (is_code(what) && !Path::new(what).exists()) {
        return Ok(print_code((what != "codes").then_some(what))?);
    }
    if is_recording(Path::new(what)) { tail(flags) } else { check(flags) }
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

/// Length of the recording of a running frontend, unless a flag gives it.
const SECONDS: u64 = 60;

/// Records or reads, and prints the causes. Input that cannot be used ends with status 64.
fn tail(flags: &Doctor) -> Result<(), Failure> {
    let (recording, settings) = if flags.is_running() { live(flags)? } else { recorded(flags)? };
    let settings = match chosen(flags, &recording.model).map_err(Failure::Configuration)? {
        Some(chosen) => chosen,
        None => settings,
    };
    let named = || flags.what().to_owned();
    let profile = record::profile(&recording, flags.what()).map_err(Failure::Configuration)?;
    let setup = Setup { settings, seed: flags.seed, repeats: flags.repeats };
    let bar = Bar::new(replayed_queries(&recording, &profile, &setup), "queries");
    let findings =
        why(&recording, &profile, &setup, &bar).with_context(named).map_err(Failure::Configuration)?;
    drop(bar);
    printer::show(&findings, flags.output).map_err(Failure::Run)
}

/// Reads a recording; its frontend is assumed to have the default settings.
fn recorded(flags: &Doctor) -> Result<(Recording, PoolSettings), Failure> {
    let recording = record::read(Path::new(flags.what()), flags.model.as_deref());
    let recording = recording.map_err(Failure::Configuration)?;
    Ok((recording, PoolSettings::default()))
}

/// Records a running frontend and reads its settings.
fn live(flags: &Doctor) -> Result<(Recording, PoolSettings), Failure> {
    let admin =
        Admin::at(flags.what(), flags.key.clone(), &flags.identity).map_err(Failure::Configuration)?;
    let read = async {
        let mut text = Vec::new();
        record::stream(&admin, flags.seconds.unwrap_or(SECONDS), &mut text).await?;
        let recording = Recording::read(text.as_slice(), flags.model.as_deref())?;
        let path = format!("/admin/v1/settings/{}", ctl::escaped(&recording.model));
        let mut settings = admin.call(Method::GET, &path, None).await?;
        // The rest are the settings themselves.
        settings.as_object_mut().map(|settings| settings.remove("in_force"));
        let settings = serde_json::from_value(settings);
        Ok((recording, settings.context("the frontend has settings of another version")?))
    };
    Ok(block_on(read)?)
}

/// Returns the settings that the flags name.
fn chosen(flags: &Doctor, model: &str) -> anyhow::Result<Option<PoolSettings>> {
    if let Some(policy) = &flags.policy {
        let policy = serde_json::from_value(json!(policy)).map_err(|error| anyhow!("--policy: {error}"))?;
        return Ok(Some(PoolSettings { policy, ..PoolSettings::default() }));
    }
    let Some(path) = &flags.config else { return Ok(None) };
    let named = || format!("cannot use {}", path.display());
    let text = std::fs::read_to_string(path).with_context(named)?;
    Ok(Some(settings_of(&text, model).with_context(named)?))
}

/// Returns a model's settings in a configuration file.
fn settings_of(text: &str, model: &str) -> anyhow::Result<PoolSettings> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct File {
        frontend: Frontend,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Frontend {
        dispatch: PoolSettings,
        models: std::collections::BTreeMap<String, PoolSettings>,
    }
    let File { mut frontend } = toml::from_str(text)?;
    Ok(frontend.models.remove(model).unwrap_or(frontend.dispatch))
}

/// The page is compiled in, so that the text is that of this version and needs no file.
const PAGE: &str = include_str!("../../docs/errors.md");

/// Prints the section of a code, or the titles of all.
fn print_code(code: Option<&str>) -> anyhow::Result<()> {
    let text = match code {
        Some(code) => explained(code)?,
        None => StableCode::ALL.iter().filter_map(|code| section(code.name())).map(title).collect(),
    };
    crate::printer::stdout().write_all(text.as_bytes()).context("cannot print the explanation")
}

/// Whether a text looks like a code.
fn is_code(text: &str) -> bool {
    name_of(text).starts_with("PARM-")
}

fn explained(code: &str) -> anyhow::Result<String> {
    let name = name_of(code);
    let known = StableCode::ALL.iter().any(|code| code.name() == name);
    let section = section(&name).filter(|_| known);
    let section =
        section.ok_or_else(|| anyhow!("unknown code '{code}': list all codes with parm doctor codes"))?;
    Ok(format!("{}\n", section.trim_end()))
}

/// The name of a code, which may be given as its number alone.
fn name_of(code: &str) -> String {
    let name = code.trim_matches(['[', ']']).to_ascii_uppercase();
    let number = name.strip_prefix("PARM-").unwrap_or(&name);
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { format!("PARM-{number:0>4}") } else { name }
}

/// The section of a code, without the mark of its heading.
fn section(name: &str) -> Option<&'static str> {
    let start = PAGE.find(&format!("\n### {name}: "))? + "\n### ".len();
    let rest = &PAGE[start..];
    Some(&rest[..rest.find("\n##").unwrap_or(rest.len())])
}

/// The first line of a section.
fn title(section: &str) -> String {
    format!("{}\n", section.lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parm_settings::PolicyKind;

    #[test]
    fn settings_of_the_model_come_before_those_of_all() {
        let text = "[server]\nhttp = \"x\"\n[frontend.dispatch]\npolicy = \"equal\"\n[frontend.models.a]\npolicy = \"parm+\"\n";
        assert_eq!(settings_of(text, "a").unwrap().policy, PolicyKind::ParmPlus);
        assert_eq!(settings_of(text, "b").unwrap().policy, PolicyKind::Equal);
        assert_eq!(settings_of("", "b").unwrap(), PoolSettings::default());
        settings_of("[frontend.dispatch]\npolicy = \"hope\"\n", "a").unwrap_err();
    }

    #[test]
    fn errors_page_has_one_section_per_code_in_order() {
        let headings: Vec<&str> = PAGE.lines().filter_map(|line| line.strip_prefix("### PARM-")).collect();
        let in_page: Vec<_> =
            headings.iter().map(|text| text.split(':').next().unwrap_or_default()).collect();
        let in_table: Vec<_> = StableCode::ALL.iter().map(|code| code.name().replace("PARM-", "")).collect();
        assert_eq!(in_page, in_table);
        let rises = in_table.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(rises, "codes rise, and the code of a retired error is not given again: {in_table:?}");
    }

    #[test]
    fn each_section_has_a_cause_and_a_remedy_in_few_words() {
        for code in StableCode::ALL {
            let text = explained(code.name()).unwrap();
            let words = text.split_whitespace().count();
            assert!(text.contains("\n- Cause: ") && text.contains("\n- What to do: "), "{text}");
            assert!((20..=65).contains(&words), "{words} words: {text}");
        }
    }

    #[test]
    fn unknown_code_error_names_the_command_that_lists_codes() {
        for code in ["PARM-9999", "PARM-", "Exit codes", ""] {
            let error = explained(code).unwrap_err().to_string();
            assert_eq!(error, format!("unknown code '{code}': list all codes with parm doctor codes"));
        }
        assert_eq!(explained("[parm-0003]").unwrap(), explained("PARM-0003").unwrap());
    }

    #[test]
    fn bare_number_of_a_code_is_explained() {
        for number in ["12", "0012", "parm-12"] {
            assert_eq!(explained(number).unwrap(), explained("PARM-0012").unwrap(), "{number}");
        }
        explained("0").unwrap_err();
        explained("00012").unwrap_err();
    }
}
