//! Reports a panic of the dispatcher: its message, and a file of the latest events for replay.
//!
//! The report is written while the panic unwinds and the process is about to end, so a failure to write only becomes
//! part of the report. The file is new and readable only by its owner, because the default folder is writable by all
//! users.

use std::any::Any;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use parm_dispatch::replay::Tape;

/// Writes the latest events and describes the panic.
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
    let file = folder.join(format!("parm-crash-{}-{millis}.jsonl", std::process::id()));
    let mut opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
    opened.write_all(&tape.write())?;
    Ok(file)
}
