//! Reports a panic of the dispatcher: its message, and a file of the latest calls of it.
//!
//! The report is written while the panic unwinds and the process is about to end, so a failure to write only becomes
//! part of the report. The file is new and readable only by its owner, because the default folder is writable by all
//! users.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use parm_dispatcher::{End, Failure, GroupKey, InstanceKey, JobKey, ModelKey, QueryKey, Time};

/// Calls that are kept.
const KEPT: usize = 1000;

/// A call of the dispatcher.
#[allow(dead_code, reason = "fields are read by Debug")]
#[derive(Clone, Copy, Debug)]
pub(super) enum Told {
    Submitted(ModelKey),
    Cancelled,
    Ended(JobKey, Ended),
    Ticked,
    Joined,
    Serves(InstanceKey),
    Held(InstanceKey, bool),
    Left(InstanceKey),
    Configured(ModelKey),
    Roles,
    Removed(ModelKey),
    Probed(InstanceKey),
    Distrusted(InstanceKey),
    Encoded(GroupKey),
    Decoded(QueryKey),
    Heard(InstanceKey, parm_grants::Told),
}

/// How a run ended.
#[allow(dead_code, reason = "fields are read by Debug")]
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    Answered,
    Failed(Failure),
    Cancelled,
}

impl<O> From<&End<O>> for Ended {
    fn from(end: &End<O>) -> Self {
        match end {
            End::Answered(_) => Self::Answered,
            End::Failed(failure) => Self::Failed(*failure),
            End::Cancelled => Self::Cancelled,
        }
    }
}

/// The latest calls.
#[derive(Default)]
pub(super) struct Tape(VecDeque<(Time, Told)>);

impl Tape {
    pub(super) fn note(&mut self, now: Time, told: Told) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((now, told));
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (at, told) in &self.0 {
            let _ = writeln!(text, "{} us: {told:?}", at.as_nanos() / 1000);
        }
        text
    }
}

/// Writes the latest calls and describes the panic.
pub(super) fn report(folder: Option<&Path>, tape: &Tape, panic: &Box<dyn Any + Send>) -> String {
    let known = panic.downcast_ref::<String>().map(String::as_str);
    let message =
        known.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message");
    let Some(folder) = folder else {
        return format!("{message}; the latest events were not written: set frontend.recording.crash_folder");
    };
    match write(folder, tape) {
        Ok(file) => format!("{message}; the latest events are in {}", file.display()),
        Err(error) => format!("{message}; cannot write the latest events to {}: {error}", folder.display()),
    }
}

fn write(folder: &Path, tape: &Tape) -> std::io::Result<PathBuf> {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let file = folder.join(format!("parm-crash-{}-{millis}.txt", std::process::id()));
    let mut opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
    opened.write_all(tape.text().as_bytes())?;
    Ok(file)
}
