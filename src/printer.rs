//! Standard output of commands, whose reader may close it early, as `head` does.
//!
//! Commands end quietly then, and a broken connection to a server is still an error: only writes to this output carry
//! `ReaderGone`.

use std::fmt;
use std::io::{self, Write};

use serde::Serialize;

use crate::cli::Output;

/// Standard output.
pub struct Printer(io::StdoutLock<'static>);

#[derive(Debug, thiserror::Error)]
#[error("the reader of standard output has closed it")]
struct ReaderGone;

/// Standard output, locked.
pub fn stdout() -> Printer {
    Printer(io::stdout().lock())
}

/// Prints a result for people, or as JSON.
pub fn show(result: &(impl Serialize + fmt::Display), output: Output) -> anyhow::Result<()> {
    print(output, result, || result.to_string())
}

/// Prints a text for people, or the data as JSON.
pub fn print(output: Output, data: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    match output {
        Output::Text => say(&text()),
        Output::Json => say(&serde_json::to_string_pretty(data)?),
    }
}

/// Prints a text.
pub fn say(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(stdout(), "{text}")?)
}

/// Lines of cells, in columns as wide as their longest cell.
pub fn table<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Whether an error only says that the reader of standard output has closed it.
pub fn reader_is_gone(error: &anyhow::Error) -> bool {
    let written = |error: &io::Error| error.get_ref().is_some_and(|inner| inner.is::<ReaderGone>());
    error.chain().any(|cause| cause.downcast_ref().is_some_and(written))
}

fn marked<T>(written: io::Result<T>) -> io::Result<T> {
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, ReaderGone),
        _ => error,
    })
}

impl Write for Printer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        marked(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        marked(self.0.flush())
    }
}
