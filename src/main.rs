//! The `parm` binary: parses flags, loads the configuration, calls crates, maps errors to exit codes.
//!
//! Logic belongs into the crates.

// `pub` marks the items that other modules may use; a binary has no other users.
#![allow(unreachable_pub)]

mod admin;
mod cli;
mod codes;
mod ctl;
#[cfg(feature = "train")]
mod data;
mod demo;
mod doctor;
#[cfg(test)]
mod documents;
mod environment;
#[cfg(feature = "train")]
mod evaluate;
mod example;
mod experiment;
mod grid;
mod keys;
#[cfg(test)]
mod limits;
mod load;
mod logging;
mod manual;
mod models;
mod nets;
mod printer;
mod progress;
mod record;
mod reload;
mod run;
mod runtime;
mod serve;
mod settings;
mod shutdown;
mod simulate;
mod stand_in;
mod stream;
mod top;
#[cfg(feature = "train")]
mod train;
#[cfg(not(feature = "train"))]
#[path = "train/absent.rs"]
mod train;
mod tune;
mod worker;

use std::fmt;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use parm_protocol::StableCode;

/// Exit status of a configuration error (EX_USAGE).
const BAD_CONFIGURATION: u8 = 64;
/// Exit status after a panic that the process cannot survive (EX_SOFTWARE): restart it and report the defect.
const PANICKED: u8 = 70;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(flags) => demo::main(&flags),
        Command::Serve(flags) => serve::main(&flags),
        Command::Run(flags) => run::main(&flags),
        Command::Worker(flags) => worker::main(&flags),
        Command::Load(flags) => load::main(&flags).map_err(Failure::from),
        Command::Simulate(flags) => simulate::main(&flags),
        Command::Experiment(flags) => experiment::main(&flags),
        Command::Tune(flags) => tune::main(&flags),
        Command::Record(flags) => record::main(&flags),
        Command::Ctl(flags) => ctl::main(&flags),
        Command::Doctor(flags) => doctor::main(&flags),
        Command::Top(flags) => top::main(&flags),
        Command::Keys(flags) => keys::main(&flags.command),
        Command::StandIn(flags) => stand_in::main(&flags),
        Command::Train(flags) => train::main(&flags.command),
        #[cfg(feature = "train")]
        Command::Evaluate(flags) => evaluate::main(&flags),
        #[cfg(feature = "train")]
        Command::Data(flags) => data::main(&flags.command),
        #[cfg(not(feature = "train"))]
        Command::Evaluate(_) | Command::Data(_) => Err(train::absent()),
        Command::Completions { shell } => manual::completions(shell).map_err(Failure::from),
        Command::Man { folder } => manual::write(&folder).map_err(Failure::from),
        Command::Models(flags) => models::main(&flags.command).map_err(Failure::from),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_reader_gone() => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("parm: {failure}");
            ExitCode::from(failure.status())
        }
    }
}

/// The failure of a command, which decides the exit status.
#[derive(Debug)]
enum Failure {
    /// The configuration cannot be used: status 64.
    Configuration(anyhow::Error),
    /// A part that the process needs has panicked: status 70.
    Panicked(anyhow::Error),
    /// Anything else: status 1.
    Run(anyhow::Error),
}

impl Failure {
    /// Whether only the reader of standard output has closed it.
    fn is_reader_gone(&self) -> bool {
        match self {
            Self::Configuration(error) | Self::Panicked(error) | Self::Run(error) => {
                printer::reader_is_gone(error)
            }
        }
    }

    fn status(&self) -> u8 {
        match self {
            Self::Configuration(_) => BAD_CONFIGURATION,
            Self::Panicked(_) => PANICKED,
            Self::Run(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (error, usual) = match self {
            Self::Configuration(error) => {
                to.write_str("invalid input: ")?;
                (error, Some(StableCode::InvalidSetting))
            }
            Self::Panicked(error) => (error, Some(StableCode::FrontendPanicked)),
            Self::Run(error) => (error, None),
        };
        write!(to, "{error:#}")?;
        match codes::of(error).or(usual) {
            Some(code) => write!(to, " [{code}]"),
            None => Ok(()),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Run(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_the_documentation() {
        let error = || anyhow::Error::msg("it");
        let page = include_str!("../docs/errors.md");
        for (failure, word) in [
            (Failure::Run(error()), "it failed"),
            (Failure::Configuration(error()), "configuration"),
            (Failure::Panicked(error()), "panicked"),
        ] {
            let row = page.lines().find(|line| line.starts_with(&format!("| {} |", failure.status())));
            assert!(row.is_some_and(|row| row.contains(word)), "{row:?} lacks '{word}'");
        }
    }
}
