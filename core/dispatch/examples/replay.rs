//! Replays the events that a frontend wrote when its dispatcher panicked.
//!
//! Run `cargo run -p parm-dispatch --example replay FILE`. The program panics where the original did, with a stack
//! trace under `RUST_BACKTRACE=1`. Check out the commit of the frontend's version first, because other code leads
//! to other states.

// The output of the program is its result.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use parm_dispatch::replay::Replay;

fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("replay: name the file, such as /tmp/parm-crash-1-1700000000000.jsonl");
        return ExitCode::from(64);
    };
    let read = std::fs::read_to_string(&file).map_err(|error| error.to_string());
    let played = match read.and_then(|text| Replay::read(&text).map_err(|error| error.to_string())) {
        Ok(replay) => replay.play(),
        Err(reason) => {
            eprintln!("replay: cannot use {file}: {reason}");
            return ExitCode::from(64);
        }
    };
    let kind = if played.complete { "complete" } else { "latest events only" };
    println!("{} events played, {} skipped ({kind}): no panic", played.events, played.skipped);
    ExitCode::SUCCESS
}
