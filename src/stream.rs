//! The event stream of a frontend: its lines, the state that they describe, and figures over the frames of the last minute.
//!
//! `parm top`, `parm ctl` and `parm doctor` read it, like the admin page.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

use anyhow::Context;
use parm_transport::client::Lines;
use serde::Serialize;
use serde_json::Value;

use crate::admin::Admin;

/// Number of frames over which quantiles are computed.
const FRAMES: usize = 60;

/// Number of events that are kept.
const EVENTS: usize = 1000;

/// A frontend's event stream, with its state so far.
pub struct Stream {
    lines: Lines,
    pub state: State,
}

impl Stream {
    pub async fn open(admin: &Admin) -> anyhow::Result<Self> {
        Ok(Self { lines: admin.lines("/admin/v1/stream").await?, state: State::default() })
    }

    /// Reads until the next frame. False at the end of the stream.
    pub async fn next(&mut self) -> anyhow::Result<bool> {
        while let Some(line) = self.lines.next().await.context("the frontend closed the connection")? {
            let line: Value = serde_json::from_slice(&line).context("a line of the stream is not JSON")?;
            if self.state.take(&line) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The state of a frontend, from its event stream.
#[derive(Default)]
pub struct State {
    pub hello: Value,
    pub models: Vec<Value>,
    pub instances: BTreeMap<u64, Value>,
    pub events: VecDeque<Value>,
    /// The latest frames, oldest first.
    pub frames: VecDeque<Value>,
    pub dropped: u64,
}

/// A histogram of latencies.
#[derive(Default)]
struct Times {
    counts: BTreeMap<u64, u64>,
    count: u64,
}

impl State {
    /// Applies a line of the stream. Returns true for a current frame.
    pub fn take(&mut self, line: &Value) -> bool {
        let Some((kind, value)) = line.as_object().and_then(|line| line.iter().next()) else { return false };
        match kind.as_str() {
            "hello" => self.hello = value.clone(),
            "models" => self.models = list(value),
            "instances" => {
                let number = |one: &Value| Some((one["number"].as_u64()?, one.clone()));
                self.instances = list(value).iter().filter_map(number).collect();
            }
            "events" => {
                self.events.extend(list(value));
                self.events.drain(..self.events.len().saturating_sub(EVENTS));
            }
            "dropped" => self.dropped += value.as_u64().unwrap_or_default(),
            "past" | "frame" => {
                self.frames.push_back(value.clone());
                self.frames.drain(..self.frames.len().saturating_sub(FRAMES));
            }
            // A newer frontend may send other lines.
            _ => {}
        }
        kind == "frame"
    }

    /// Returns a model's name, with its version if it has several.
    pub fn title(&self, model: &Value) -> String {
        let name = model["name"].as_str().unwrap_or_default();
        let same = self.models.iter().filter(|other| other["name"] == model["name"]).count();
        match model["version"].as_str() {
            Some(version) if same > 1 => format!("{name}/{version}"),
            _ => name.to_owned(),
        }
    }

    /// Returns a model's part of a frame.
    pub fn of_model<'a>(&self, frame: &'a Value, m: &Value) -> Option<&'a Value> {
        frame["models"].as_array()?.iter().find(|own| own["m"] == *m)
    }

    /// Returns the latencies of a model's queries with these outcomes, over all frames.
    fn times(&self, m: &Value, outcomes: impl Fn(&str) -> bool) -> Times {
        let mut times = Times::default();
        let names = list(&self.hello["outcomes"]);
        for own in self.frames.iter().filter_map(|frame| self.of_model(frame, m)) {
            for (name, latency) in names.iter().zip(list(&own["latency"])) {
                if outcomes(name.as_str().unwrap_or_default()) {
                    times.add(&latency);
                }
            }
        }
        times
    }

    /// Returns a count of a model, over all frames.
    fn counted(&self, m: &Value, name: &str) -> u64 {
        let Some(at) = list(&self.hello["counts"]).iter().position(|known| known == name) else { return 0 };
        let parts = self.frames.iter().filter_map(|frame| self.of_model(frame, m));
        parts.filter_map(|own| own["counts"][at].as_u64()).sum()
    }

    /// Returns the time of the latest frame in milliseconds.
    pub fn now_ms(&self) -> Option<u64> {
        self.frames.back()?["at"].as_u64()
    }

    /// Returns the milliseconds that the frames cover.
    fn covered_ms(&self) -> u64 {
        self.frames.iter().filter_map(|frame| frame["over_ms"].as_u64()).sum()
    }

    /// Returns the middle of a bucket in milliseconds.
    fn millis(&self, bucket: f64) -> f64 {
        let buckets = &self.hello["buckets"];
        let first = buckets["first_us"].as_f64().unwrap_or(64.0);
        let per_octave = buckets["per_octave"].as_f64().unwrap_or(16.0);
        first * ((bucket + 0.5) / per_octave).exp2() / 1e3
    }
}

impl Times {
    /// Returns the bucket of a quantile.
    fn quantile(&self, share: f64) -> Option<u64> {
        let rank = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        self.counts.iter().find_map(|(bucket, count)| {
            below += count;
            (below >= rank).then_some(*bucket)
        })
    }

    fn add(&mut self, histogram: &Value) {
        let numbers: Vec<u64> = list(histogram).iter().filter_map(Value::as_u64).collect();
        for pair in numbers.chunks_exact(2) {
            *self.counts.entry(pair[0]).or_default() += pair[1];
            self.count += pair[1];
        }
    }
}

pub fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Describes an event at a time in milliseconds.
pub fn event(one: &Value, now_ms: u64) -> String {
    let ago = now_ms.saturating_sub(one["at"].as_u64().unwrap_or(now_ms)) / 1000;
    let of = one["instance"].as_u64().map(|number| format!("instance {number}: ")).unwrap_or_default();
    let times = match one["times"].as_u64() {
        Some(times) if times > 1 => format!(" ({times} times)"),
        _ => String::new(),
    };
    let by = one["by"].as_str().map(|by| format!(", by {by}")).unwrap_or_default();
    format!("{ago:>7} s ago  {:<9} {of}{}{times}{by}", text(&one["kind"]), text(&one["text"]))
}

/// A model's figures.
#[derive(Debug, PartialEq, Serialize)]
pub struct ModelFigures {
    /// With its version if it has several.
    model: String,
    policy: String,
    queries_per_second: f64,
    /// Latencies of answers.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    p999_ms: Option<f64>,
    /// Shares of the queries.
    approximate: Option<f64>,
    errors: Option<f64>,
    waiting: u64,
    busy: f64,
    slots: u64,
    rows_per_batch: Option<f64>,
    /// The p99 from arrival to prediction, as a share of the latency objective.
    objective_used: Option<f64>,
}

/// Returns the figures of all models at the latest frame.
pub fn figures(state: &State) -> Vec<ModelFigures> {
    let Some(frame) = state.frames.back() else { return Vec::new() };
    let of = |model: &Value| Some(figures_of(state, model, state.of_model(frame, &model["m"])?));
    state.models.iter().filter_map(of).collect()
}

fn figures_of(state: &State, model: &Value, own: &Value) -> ModelFigures {
    let m = &model["m"];
    let seconds = (state.covered_ms() as f64 / 1e3).max(1e-3);
    let answers = state.times(m, |outcome| !is_error(outcome));
    let errors = state.times(m, is_error).count;
    let approximate = state.times(m, is_approximate).count;
    let all = answers.count + errors;
    let time = |share| answers.quantile(share).map(|bucket| state.millis(bucket as f64));
    let share = |part: u64| (all > 0).then(|| part as f64 / all as f64);
    let [batches, rows] = ["batches", "batch_rows"].map(|name| state.counted(m, name));
    let latency = [0, 1].map(|at| own["objective_us"][at].as_f64());
    ModelFigures {
        model: state.title(model),
        policy: model["in_force"].as_str().unwrap_or_default().to_owned(),
        queries_per_second: all as f64 / seconds,
        p50_ms: time(0.5),
        p99_ms: time(0.99),
        p999_ms: time(0.999),
        approximate: share(approximate),
        errors: share(errors),
        waiting: own["queue"][0].as_u64().unwrap_or_default(),
        busy: own["busy"].as_f64().unwrap_or_default(),
        slots: own["queue"][5].as_u64().unwrap_or_default(),
        rows_per_batch: (batches > 0).then(|| rows as f64 / batches as f64),
        objective_used: latency[0].zip(latency[1]).filter(|(_, all)| *all > 0.0).map(|(p99, all)| p99 / all),
    }
}

/// Formats the figures as a table with a line for each model.
pub fn table(models: &[ModelFigures]) -> String {
    let mut table = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        table,
        "{:<24} {:<18} {:>8} {:>8} {:>8} {:>9} {:>9} {:>8} {:>7} {:>7} {:>5} {:>6}",
        "MODEL",
        "POLICY",
        "QUERIES",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "approx",
        "errors",
        "queue",
        "busy",
        "rows",
        "of SLO"
    );
    for own in models {
        let _ = line(&mut table, own);
    }
    table
}

fn line(table: &mut String, own: &ModelFigures) -> std::fmt::Result {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.2} %", 100.0 * share));
    let used = own.objective_used.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
    writeln!(
        table,
        "{:<24} {:<18} {:>6.0}/s {:>8} {:>8} {:>9} {:>9} {:>8} {:>7} {:>7} {:>5} {used:>6}",
        cut(&own.model, 24),
        own.policy,
        own.queries_per_second,
        number(own.p50_ms),
        number(own.p99_ms),
        number(own.p999_ms),
        share(own.approximate),
        share(own.errors),
        own.waiting,
        format!("{:.1}/{}", own.busy, own.slots),
        number(own.rows_per_batch),
    )
}

fn is_error(outcome: &str) -> bool {
    matches!(outcome, "rejected" | "failed")
}

fn is_approximate(outcome: &str) -> bool {
    matches!(outcome, "reconstructed" | "stand-in" | "backup" | "default")
}

fn cut(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        name.to_owned()
    } else {
        name.chars().take(most - 1).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The figures after two frames with these counts of batches and their rows.
    fn after(frames: [[u64; 2]; 2], objective_us: Value) -> ModelFigures {
        let mut state = State::default();
        state
            .take(&json!({"hello": {"outcomes": ["exact"], "counts": ["arrived", "batches", "batch_rows"]}}));
        state.take(&json!({"models": [{"m": 4, "name": "resnet50", "version": "1", "in_force": "none"}]}));
        for [batches, rows] in frames {
            let own = json!({"m": 4, "latency": [[]], "queue": [0, 0, 0, 0, 0, 0],
                "counts": [7, batches, rows], "objective_us": objective_us});
            assert!(state.take(&json!({"frame": {"at": 0, "over_ms": 1000, "models": [own]}})));
        }
        figures(&state).remove(0)
    }

    #[test]
    fn rows_of_batches_are_a_mean_over_all_frames() {
        let busy = after([[10, 50], [30, 50]], json!([30_000, 40_000]));
        assert_eq!((busy.rows_per_batch, busy.objective_used), (Some(2.5), Some(0.75)));
        let table = table(&[busy]);
        let line = table.lines().last().unwrap();
        assert!(line.contains(" 2.5 ") && line.ends_with(" 75 %"), "{table}");
    }

    #[test]
    fn unknown_figures_of_a_model_are_dashes() {
        let idle = after([[0, 0], [0, 0]], Value::Null);
        assert_eq!((idle.rows_per_batch, idle.objective_used), (None, None));
        assert!(table(&[idle]).lines().last().unwrap().ends_with(" -      -"));
    }
}
