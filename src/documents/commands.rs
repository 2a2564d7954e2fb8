//! The command line reference: the help of every command, found by walking the tree of commands.

use std::fmt::Write;

use clap::{Command, CommandFactory};

use crate::cli::Cli;

/// Columns of the page.
const WIDTH: usize = 110;

#[test]
fn the_command_line_reference_is_the_help_of_every_command() {
    let parm = Cli::command();
    let mut page = String::from("# Command line\n\nGenerated from `parm --help` by `just docs-refresh`.\n");
    describe(&parm, &["parm"], &mut page);
    super::check("docs/cli.md", &page);
}

/// The help of the command at this path, then of those below it.
fn describe(command: &Command, path: &[&str], page: &mut String) {
    let asked = Cli::command().term_width(WIDTH).try_get_matches_from(path.iter().chain(&["--help"]));
    let help = asked.expect_err("a question for help ends the parsing").to_string();
    // The help of a list item may end in spaces; a page need not.
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    writeln!(page, "\n## {}\n\n```text\n{}\n```", path.join(" "), lines.join("\n")).unwrap();
    for below in command.get_subcommands() {
        describe(below, &[path, &[below.get_name()]].concat(), page);
    }
}
