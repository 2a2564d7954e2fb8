//! `parm completions` and `parm man`: generates shell completions and manual pages.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;

/// Prints a shell's completions.
pub fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "parm", &mut script);
    crate::printer::stdout().write_all(&script).context("cannot print the completions")
}

/// Writes a page for every command: `parm.1`, `parm-serve.1`, `parm-models-verify.1` and so on.
pub fn write(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
        .with_context(|| format!("cannot write the manual to {}", folder.display()))?;
    let shown = folder.display();
    writeln!(crate::printer::stdout(), "the manual is in {shown}; `man {shown}/parm.1` shows its first page")
        .context("cannot print the manual's folder")
}
