//! Keeps the contents of the event stream: models, instances, and the frames of the last minute.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

/// Number of frames over which quantiles are computed.
const FRAMES: usize = 60;

/// Number of events that are shown.
const EVENTS: usize = 6;

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
pub struct Times {
    counts: BTreeMap<u64, u64>,
    pub count: u64,
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
    pub fn times(&self, m: &Value, outcomes: impl Fn(&str) -> bool) -> Times {
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
    pub fn counted(&self, m: &Value, name: &str) -> u64 {
        let Some(at) = list(&self.hello["counts"]).iter().position(|known| known == name) else { return 0 };
        let parts = self.frames.iter().filter_map(|frame| self.of_model(frame, m));
        parts.filter_map(|own| own["counts"][at].as_u64()).sum()
    }

    /// Returns the milliseconds that the frames cover.
    pub fn covered_ms(&self) -> u64 {
        self.frames.iter().filter_map(|frame| frame["over_ms"].as_u64()).sum()
    }

    /// Returns the middle of a bucket in milliseconds.
    pub fn millis(&self, bucket: f64) -> f64 {
        let buckets = &self.hello["buckets"];
        let first = buckets["first_us"].as_f64().unwrap_or(64.0);
        let per_octave = buckets["per_octave"].as_f64().unwrap_or(16.0);
        first * ((bucket + 0.5) / per_octave).exp2() / 1e3
    }
}

impl Times {
    /// Returns the bucket of a quantile.
    pub fn quantile(&self, share: f64) -> Option<u64> {
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
