//! `parm top`: shows a running frontend in the terminal, from the event stream of the admin page.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

use clap::Args;
use serde_json::Value;

use crate::Failure;
use crate::admin::{Admin, Reach, block_on};
use crate::stream::{State, Stream, event, figures, list, table, text};

pub const EXAMPLES: &str = "Examples:
  parm top
      updates every second, until Ctrl-C
  parm top --once
      prints one second, for scripts";

/// `parm top`.
#[derive(Debug, Args)]
pub struct Top {
    #[command(flatten)]
    pub reach: Reach,
    /// Print one second, then exit
    #[arg(long)]
    pub once: bool,
}

/// Clears the terminal and moves the cursor to its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Runs the command.
pub fn main(flags: &Top) -> Result<(), Failure> {
    let admin = Admin::of(&flags.reach)?;
    Ok(block_on(watch(&admin, flags))?)
}

async fn watch(admin: &Admin, flags: &Top) -> anyhow::Result<()> {
    let mut stream = Stream::open(admin).await?;
    let live = io::stdout().is_terminal() && !flags.once;
    loop {
        let is_open = tokio::select! {
            next = stream.next() => next?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        anyhow::ensure!(is_open, "the frontend ended the stream: it may be shutting down: check its log");
        let mut out = crate::printer::stdout();
        writeln!(out, "{}{}", if live { CLEAR } else { "" }, page(&stream.state))?;
        out.flush()?;
        if flags.once {
            return Ok(());
        }
    }
}

/// Number of instances that are shown, unhealthy and slow ones first.
const INSTANCES: usize = 24;

/// Number of events that are shown.
const EVENTS: usize = 6;

/// Formats the page.
fn page(state: &State) -> String {
    let mut page = String::new();
    let Some(frame) = state.frames.back() else { return page };
    // Writing to a string cannot fail.
    let _ = head(&mut page, state);
    let _ = write!(page, "\n{}", table(&figures(state)));
    let _ = instances(&mut page, state, frame);
    let now_ms = state.now_ms().unwrap_or_default();
    let events = state.events.iter().rev().take(EVENTS).map(|one| format!("\n{}", event(one, now_ms)));
    page.extend(events);
    page
}

fn head(page: &mut String, state: &State) -> std::fmt::Result {
    let hello = &state.hello;
    let at = state.now_ms().unwrap_or_default();
    let up = at.saturating_sub(hello["started_at"].as_u64().unwrap_or(at)) / 1000;
    let missed = if state.dropped > 0 { format!(", {} frames missed", state.dropped) } else { String::new() };
    writeln!(page, "parm {} up {up} s{missed}", text(&hello["version"]))
}

fn instances(page: &mut String, state: &State, frame: &Value) -> std::fmt::Result {
    let columns = list(&state.hello["columns"]);
    let place = |name: &str| columns.iter().position(|known| known == name);
    let [Some(number), Some(condition), Some(reason)] = ["number", "state", "reason"].map(place) else {
        return Ok(());
    };
    let mut rows = list(&frame["instances"]);
    let column = |row: &Value, name: &str| place(name).and_then(|at| row[at].as_f64());
    let slowness = |row: &Value| column(row, "slowness").unwrap_or(0.0);
    let well = |row: &Value| row[condition] == 1 && row[reason] == 0;
    rows.sort_by(|a, b| well(a).cmp(&well(b)).then(slowness(b).total_cmp(&slowness(a))));
    writeln!(
        page,
        "\n{:>5} {:<17} {:>6} {:>8} {:>9} {:>9} {:>7} {:>8}  INSTANCE",
        "", "STATE", "JOBS/s", "failed", "p50 ms", "p99 ms", "slower", "oldest"
    )?;
    for row in rows.iter().take(INSTANCES) {
        let name = &state.instances.get(&row[number].as_u64().unwrap_or_default());
        let why = text(&state.hello["reasons"][row[reason].as_u64().unwrap_or_default() as usize]);
        let stands = text(&state.hello["states"][row[condition].as_u64().unwrap_or_default() as usize]);
        let stands = if why.is_empty() { stands.to_owned() } else { format!("{stands}: {why}") };
        let millis = |name| column(row, name).map_or("-".to_owned(), |us| format!("{:.1}", us / 1e3));
        let count = |name| column(row, name).unwrap_or_default();
        let node = name.map_or("", |name| text(&name["node"]));
        writeln!(
            page,
            "{:>5} {stands:<17} {:>6.0} {:>8.0} {:>9} {:>9} {:>7} {:>8}  {}{}",
            row[number].to_string(),
            count("jobs"),
            count("failures"),
            millis("p50_us"),
            millis("p99_us"),
            column(row, "slowness").map_or("-".to_owned(), |times| format!("{times:.1}x")),
            column(row, "oldest_ms").map_or("-".to_owned(), |ms| format!("{ms:.0} ms")),
            name.map_or("", |name| text(&name["address"])),
            if node.is_empty() { String::new() } else { format!("  on {node}") },
        )?;
    }
    if rows.len() > INSTANCES {
        writeln!(page, "      and {} more", rows.len() - INSTANCES)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn page_shows_quantiles_and_unhealthy_instances_first() {
        let mut state = State::default();
        let hello = json!({"hello": {"version": "0.1.0", "started_at": 0, "outcomes": ["exact", "stand-in", "failed"],
            "columns": ["number", "state", "reason", "jobs", "failures", "p50_us", "p99_us", "slowness", "oldest_ms"],
            "states": ["connecting", "ready", "ejected"], "reasons": [null, "slow"],
            "buckets": {"first_us": 64, "per_octave": 16}}});
        let models = json!({"models": [{"m": 0, "name": "resnet50", "version": "7", "in_force": "stand-in"},
            {"m": 1, "name": "two", "version": "1", "in_force": "none"}, {"m": 2, "name": "two", "version": "2", "in_force": "none"}]});
        let instances = json!({"instances": [{"number": 1, "address": "http://a:1", "node": "n1"},
            {"number": 2, "address": "http://b:1", "node": null}]});
        let events =
            json!({"events": [{"at": 3000, "kind": "trouble", "instance": 2, "text": "slow", "by": null}]});
        let frame = json!({"frame": {"at": 5000, "over_ms": 1000, "models": [{"m": 0, "busy": 2.0, "queue": [1, 2, 3, 4, 5, 6],
            "latency": [[132, 98], [140, 1], [160, 1]]}, {"m": 1, "queue": [0, 0, 0, 0, 0, 0]}, {"m": 2, "queue": [0, 0, 0, 0, 0, 0]}],
            "instances": [[1, 1, 0, 99, 0, 19900, 44100, 1.0, null], [2, 2, 1, 1, 0, 60000, 90000, 3.1, 400]]}});
        for line in [hello, models, instances, events] {
            assert!(!state.take(&line));
        }
        assert!(state.take(&frame));
        let page = page(&state);
        assert!(page.contains("\ntwo/1 ") && page.contains("\ntwo/2 "), "versions are told apart: {page}");
        let row = page.lines().find(|line| line.starts_with("resnet50 ")).unwrap();
        assert!(row.contains("100/s") && row.contains("1.00 %") && row.contains("2.0/6"), "{row}");
        assert!(row.contains("19.9"), "the middle of bucket 132: {row}");
        let numbers: Vec<_> = page.lines().filter(|line| line.contains("http://")).collect();
        assert!(numbers[0].contains("ejected: slow") && numbers[0].contains("3.1x"), "{page}");
        assert!(numbers[1].contains("on n1"), "{page}");
        assert!(page.contains("2 s ago  trouble   instance 2: slow"), "{page}");
    }
}
