//! `parm check`: finds faults of a running frontend or a configuration, with their remedies.
//!
//! Prints a line for each check, so that users see what was checked, and a second line with the remedy of a fault. Ends
//! with status 1 if a check fails. Notes do not fail.

mod asking;
mod configured;
mod engine;
mod gpu;
mod names;
mod peers;
mod requests;
mod running;

use std::io::Write;
use std::path::Path;

use anyhow::anyhow;

use crate::Failure;
use crate::admin::block_on;
use crate::cli::admin::Check;
use crate::printer::reader_is_gone;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    verdict: Verdict,
    what: String,
    /// The remedy.
    remedy: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Well,
    /// It works, but could be better.
    Worth,
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

/// Runs the command.
pub fn main(flags: &Check) -> Result<(), Failure> {
    let findings = if flags.what.contains("://") {
        block_on(running::look(flags))?
    } else {
        block_on(async { Ok(configured::look(Path::new(&flags.what)).await) })?
    };
    let written = write!(crate::printer::stdout(), "{}", told(&findings)).map_err(anyhow::Error::from);
    // The status is that of the checks also if the reader wants only the first lines.
    written.or_else(|error| if reader_is_gone(&error) { Ok(()) } else { Err(error) })?;
    match findings.iter().filter(|finding| finding.verdict == Verdict::Fails).count() {
        0 => Ok(()),
        1 => Err(anyhow!("1 check failed").into()),
        failed => Err(anyhow!("{failed} checks failed").into()),
    }
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
