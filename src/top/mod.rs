//! `parm top`: shows a running frontend in the terminal, from the event stream of the admin page.

mod models;
mod state;
mod view;

use std::io::{self, IsTerminal, Write};

use crate::Failure;
use crate::admin::{Admin, block_on};
use crate::cli::admin::Top;

pub use models::{ModelFigures, figures, table};
pub use state::{State, list};

/// Clears the terminal and moves the cursor to its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Runs the command.
pub fn main(flags: &Top) -> Result<(), Failure> {
    let admin = Admin::of(&flags.reach)?;
    Ok(block_on(watch(&admin, flags))?)
}

async fn watch(admin: &Admin, flags: &Top) -> anyhow::Result<()> {
    let mut lines = admin.lines("/admin/v1/stream").await?;
    let mut state = State::default();
    let live = io::stdout().is_terminal() && !flags.once;
    loop {
        let next = tokio::select! {
            next = lines.next() => next?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let Some(lines) = next else {
            anyhow::bail!("the frontend ended the stream: it may be shutting down: check its log")
        };
        let mut new = false;
        for line in &lines {
            new |= state.take(line);
        }
        if new {
            let mut out = crate::printer::stdout();
            let page = view::page(&state);
            write!(out, "{}{page}", if live { CLEAR } else { "" })?;
            out.flush()?;
            if flags.once {
                return Ok(());
            }
        }
    }
}
