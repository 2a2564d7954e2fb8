//! The `parm` binary: parse, load the configuration, call a crate, map errors to exit codes. No logic lives here.

// `pub` marks what a module offers to the others; a binary has no other outside.
#![allow(unreachable_pub)]

mod admin;
mod bar;
mod check;
mod cli;
mod ctl;
#[cfg(feature = "train")]
mod data;
mod demo;
#[cfg(test)]
mod documents;
mod environment;
#[cfg(feature = "train")]
mod evaluate;
mod experiment;
mod keys;
#[cfg(test)]
mod limits;
mod load;
mod logging;
mod manual;
mod metrics;
mod models;
mod nets;
mod ready;
mod record;
mod runtime;
mod serve;
mod settings;
mod shares;
mod shutdown;
mod simulate;
mod stand_in;
mod top;
#[cfg(feature = "train")]
mod train;
#[cfg(not(feature = "train"))]
#[path = "train/absent.rs"]
mod train;
mod tune;
mod worker;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use settings::Invalid;

/// What a configuration error ends with (EX_USAGE).
const BAD_CONFIGURATION: u8 = 64;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(flags) => demo::main(&flags),
        Command::Serve(flags) => serve::main(&flags),
        Command::Worker(flags) => worker::main(&flags),
        Command::Load(flags) => load::main(&flags).map_err(Failure::from),
        Command::Simulate(flags) => simulate::main(&flags),
        Command::Experiment(flags) => experiment::main(&flags),
        Command::Tune(flags) => tune::main(&flags),
        Command::Record(flags) => record::main(&flags),
        Command::Ctl(flags) => ctl::main(&flags),
        Command::Check(flags) => check::main(&flags),
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
        Err(Failure::Configuration(error)) => {
            eprintln!("parm: bad configuration: {error:#}");
            ExitCode::from(BAD_CONFIGURATION)
        }
        Err(Failure::Run(error)) => {
            eprintln!("parm: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// How a command failed.
#[derive(Debug)]
enum Failure {
    /// The configuration cannot be used: status 64.
    Configuration(anyhow::Error),
    /// Anything else: status 1.
    Run(anyhow::Error),
}

impl From<Invalid> for Failure {
    fn from(Invalid(error): Invalid) -> Self {
        Failure::Configuration(error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Run(error)
    }
}
