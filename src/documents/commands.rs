//! The command line reference: every command with its own options, and options of several commands once.
//!
//! The tree of commands is that of the program, so that no command or option can be missing. An option that several commands
//! describe with the same words is printed at the command that all of them belong to, and by name at each of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};

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
    /// Names of options that the commands below have as well.
    global: Vec<String>,
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

/// Adds the command and those below it.
fn collect<'a>(command: &'a Command, above: &str, entries: &mut Vec<Entry<'a>>) {
    let path = format!("{above} {}", command.get_name()).trim_start().to_owned();
    let visible = command.get_arguments().filter(|option| !option.is_hide_set());
    let is_usual = |option: &&Arg| !["help", "version"].contains(&option.get_id().as_str());
    let visible: Vec<_> = visible.filter(is_usual).collect();
    let mut options: Vec<_> = visible.iter().map(|option| described(option)).collect();
    let global = visible.iter().zip(&options).filter(|(option, _)| option.is_global_set());
    let global = global.map(|(_, option)| option.name.clone()).collect();
    // Global options are printed at the command that has them, and not again at those below it.
    if let Some(parent) = entries.iter().find(|entry| entry.path == above) {
        options.retain(|option| !parent.global.contains(&option.name));
    }
    entries.push(Entry { path: path.clone(), command, options, global });
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        collect(below, &path, entries);
    }
}

fn shared(entries: &[Entry<'_>]) -> Shared {
    let mut users: BTreeMap<&Described, Vec<&str>> = BTreeMap::new();
    for entry in entries {
        let flags = entry.options.iter().filter(|option| option.name.starts_with("--"));
        flags.for_each(|option| users.entry(option).or_default().push(&entry.path));
    }
    let mut users: Vec<_> = users.into_iter().filter(|(_, paths)| paths.len() > 1).collect();
    users.sort_by_key(|(_, paths)| Reverse(paths.len()));
    let mut shared = Shared::new();
    for (option, paths) in users {
        let words = paths.iter().map(|path| path.split(' ').collect::<Vec<_>>());
        let common = words.reduce(|one, other| {
            one.iter().zip(&other).take_while(|(a, b)| a == b).map(|(a, _)| *a).collect()
        });
        let group = shared.entry(common.unwrap_or_default().join(" ")).or_default();
        // A name stands for one option of a group: that of the most commands.
        if group.iter().all(|other| other.name != option.name) {
            group.push(option.clone());
        }
    }
    shared.values_mut().for_each(|group| group.sort());
    shared
}

fn section(entry: &Entry<'_>, shared: &Shared, page: &mut String) {
    let Entry { path, command, options, .. } = entry;
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = paragraphs(&about.map(ToString::to_string).unwrap_or_default());
    writeln!(page, "\n## {path}\n\n{about}").unwrap();
    page.push_str(if options.is_empty() { "" } else { "\n" });
    let mut common: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for option in options {
        match shared.iter().find(|(_, group)| group.contains(option)) {
            Some((group, _)) => common.entry(group).or_default().push(format!("`{}`", option.name)),
            None => writeln!(page, "{}", option.line).unwrap(),
        }
    }
    for (group, names) in common {
        let below =
            if command.get_subcommands().next().is_some() { ", also at the commands below" } else { "" };
        let names = wrapped(&format!("- Options of `{group}`{below}: {}", names.join(", ")), "  ");
        writeln!(page, "{}", names.trim_start()).unwrap();
    }
    if let Some(several) = shared.get(path) {
        writeln!(page, "\nOptions of several `{path}` commands:\n").unwrap();
        several.iter().for_each(|option| writeln!(page, "{}", option.line).unwrap());
    }
    if path == "parm" {
        writeln!(page, "- `-h, --help`, `-V, --version`: Help and version of every command").unwrap();
    }
    if let Some(examples) = command.get_after_long_help() {
        let examples = examples.to_string();
        let examples = examples.trim_start_matches("Examples:").trim_matches('\n');
        writeln!(page, "\n```text\n{examples}\n```").unwrap();
    }
}

/// Paragraphs of a help text, in lines of the page's width.
fn paragraphs(text: &str) -> String {
    text.split("\n\n").map(|paragraph| wrapped(paragraph, "")).collect::<Vec<_>>().join("\n\n")
}

fn described(option: &Arg) -> Described {
    let long = option.get_long().map(|name| format!("--{name}"));
    let short = option.get_short().map(|name| format!("-{name}"));
    let values = option.get_value_names().filter(|_| option.get_action().takes_values()).unwrap_or_default();
    let values: Vec<_> = values.iter().map(|value| format!("<{value}>")).collect();
    let names: Vec<_> = short.into_iter().chain(long.clone()).collect();
    let head = [names.join(", "), values.join(" ")].join(" ").trim().to_owned();
    let help = option.get_long_help().or_else(|| option.get_help()).map(ToString::to_string);
    let text = format!("- `{head}`: {}{}", help.unwrap_or_default(), notes(option));
    let line = wrapped(&text, "  ").trim_start().to_owned();
    Described { name: long.unwrap_or(head), line }
}

/// Other names, default, variable and possible values.
fn notes(option: &Arg) -> String {
    let mut notes = Vec::new();
    if option.is_required_set() {
        notes.push("[required]".to_owned());
    }
    if let Some(aliases) = option.get_visible_aliases() {
        notes.push(format!("[also: --{}]", aliases.join(", --")));
    }
    if let Some(variable) = option.get_env() {
        notes.push(format!("[env: {}]", variable.to_string_lossy()));
    }
    if option.get_action().takes_values() {
        let defaults = option.get_default_values().iter();
        let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
        if !defaults.is_empty() {
            notes.push(format!("[default: {}]", defaults.join(" ")));
        }
        let values = option.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
        let values: Vec<_> = values.map(|value| value.get_name().to_owned()).collect();
        if !values.is_empty() {
            notes.push(format!("[values: {}]", values.join(", ")));
        }
    }
    notes.iter().map(|note| format!(" {note}")).collect()
}
