//! The command line reference: every command with its own options, and options of several commands once.
//!
//! The tree of commands is that of the program, so that no command or option can be missing. An option that several commands
//! describe with the same words is printed below the command that all of them belong to, and by name at each of them.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::fields::wrapped;
use crate::cli::Cli;

const TITLE: &str = "# Command line

This page is for people who run `parm` in a terminal or a script: it lists every command and every option.
Generated from the program's help by `just docs-refresh`; `parm COMMAND --help` prints the same.
";

/// A command with its path, such as `parm ctl drain`, and its options.
struct Entry<'a> {
    path: String,
    command: &'a Command,
    options: Vec<Described>,
}

/// An option: its name, such as `--config`, and its line of the page.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Described {
    name: String,
    line: String,
}

/// Options of several commands, by the command that these belong to.
type Shared = BTreeMap<String, Vec<Described>>;

#[test]
fn command_line_reference_has_every_command_and_option() {
    let mut parm = Cli::command();
    parm.build();
    let mut entries = Vec::new();
    collect(&parm, "", &mut entries);
    let shared = shared(&entries);
    let mut page = TITLE.to_owned();
    for entry in &entries {
        section(entry, &shared, &mut page);
    }
    for option in entries.iter().flat_map(|entry| &entry.options) {
        assert!(page.contains(&option.line), "the page lacks {}", option.line);
    }
    super::check("docs/cli.md", &page);
}

/// The command and those below it.
fn collect<'a>(command: &'a Command, above: &str, entries: &mut Vec<Entry<'a>>) {
    let path = format!("{above} {}", command.get_name()).trim_start().to_owned();
    let visible = command.get_arguments().filter(|option| !option.is_hide_set());
    let is_usual = |option: &&Arg| !["help", "version"].contains(&option.get_id().as_str());
    let options = visible.filter(is_usual).map(described).collect();
    entries.push(Entry { path: path.clone(), command, options });
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        collect(below, &path, entries);
    }
}

fn shared(entries: &[Entry<'_>]) -> Shared {
    let mut users: BTreeMap<&Described, Vec<&str>> = BTreeMap::new();
    for entry in entries {
        entry.options.iter().for_each(|option| users.entry(option).or_default().push(&entry.path));
    }
    let mut shared = Shared::new();
    for (option, paths) in users.into_iter().filter(|(_, paths)| paths.len() > 1) {
        let alike = |a: &&str, b: &&str| a == b;
        let words = paths.iter().map(|path| path.split(' ').collect::<Vec<_>>());
        let common = words.reduce(|one, other| {
            one.iter().zip(&other).take_while(|(a, b)| alike(a, b)).map(|(a, _)| *a).collect()
        });
        shared.entry(common.unwrap_or_default().join(" ")).or_default().push(option.clone());
    }
    shared
}

fn section(entry: &Entry<'_>, shared: &Shared, page: &mut String) {
    let Entry { path, command, options } = entry;
    let about = command.get_long_about().or_else(|| command.get_about());
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim_end();
    writeln!(page, "\n## {path}\n\n{}\n", plain(&about.map(ToString::to_string).unwrap_or_default()))
        .unwrap();
    if command.get_subcommands().next().is_none() {
        writeln!(page, "```text\n{usage}\n```\n").unwrap();
    }
    let elsewhere = |option: &&Described| shared.values().flatten().any(|other| other == *option);
    let (common, own): (Vec<_>, Vec<_>) = options.iter().partition(elsewhere);
    own.iter().for_each(|option| writeln!(page, "{}", option.line).unwrap());
    if !common.is_empty() {
        let names: Vec<_> = common.iter().map(|option| format!("`{}`", option.name)).collect();
        let names = wrapped(&format!("- Common options: {}", names.join(", ")), "  ");
        writeln!(page, "{}", names.trim_start()).unwrap();
    }
    if let Some(below) = shared.get(path) {
        writeln!(page, "\nOptions of several `{path}` commands:\n").unwrap();
        below.iter().for_each(|option| writeln!(page, "{}", option.line).unwrap());
    }
    if path == "parm" {
        writeln!(page, "- `-h, --help`, `-V, --version`: Options of every command").unwrap();
    }
    if let Some(examples) = command.get_after_long_help() {
        let examples = examples.to_string();
        let examples = examples.trim_start_matches("Examples:").trim_matches('\n');
        writeln!(page, "\n```text\n{examples}\n```").unwrap();
    }
}

/// Paragraphs of a help text, in lines of the page's width.
fn plain(text: &str) -> String {
    text.split("\n\n").map(|paragraph| wrapped(paragraph, "")).collect::<Vec<_>>().join("\n\n")
}

fn described(option: &Arg) -> Described {
    let long = option.get_long().map(|name| format!("--{name}"));
    let short = option.get_short().map(|name| format!("-{name}"));
    let takes_value = matches!(option.get_action(), ArgAction::Set | ArgAction::Append);
    let values = option.get_value_names().filter(|_| takes_value).unwrap_or_default();
    let values: Vec<_> = values.iter().map(|value| format!("<{value}>")).collect();
    let names: Vec<_> = short.into_iter().chain(long.clone()).collect();
    let head = [names.join(", "), values.join(" ")].join(" ").trim().to_owned();
    let help =
        option.get_long_help().or_else(|| option.get_help()).map(ToString::to_string).unwrap_or_default();
    let line = wrapped(&format!("- `{head}`: {help}{}", notes(option)), "  ").trim_start().to_owned();
    Described { name: long.unwrap_or(head), line }
}

/// Default, variable and possible values.
fn notes(option: &Arg) -> String {
    let mut notes = Vec::new();
    let defaults: Vec<_> = option.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && !option.is_hide_default_value_set() && option.get_action().takes_values() {
        notes.push(format!("[default: {}]", defaults.join(" ")));
    }
    if let Some(variable) = option.get_env() {
        notes.push(format!("[env: {}]", variable.to_string_lossy()));
    }
    let values = option.get_possible_values();
    let values = values.iter().filter(|value| !value.is_hide_set());
    let values: Vec<_> = values.map(|value| value.get_name().to_owned()).collect();
    if !values.is_empty() && option.get_action().takes_values() && !option.is_hide_possible_values_set() {
        notes.push(format!("[values: {}]", values.join(", ")));
    }
    notes.iter().map(|note| format!(" {note}")).collect()
}
