//! Findings about the requests of the last seconds: the share that fails, with the reasons.

use serde_json::Value;

use super::Finding;
use crate::stream::{State, list};

/// Time whose requests count. It is that of the readings, so that a fault that has ended is not reported.
pub(super) const SECONDS: u64 = 5;

/// A smaller share of failing requests is a note.
const MUCH: f64 = 0.01;

/// Number of reasons that are named.
const REASONS: usize = 3;

/// Queries of a model in the last seconds.
#[derive(Debug, Default)]
pub(super) struct Recent {
    pub(super) all: u64,
    /// Failed ones by reason, the most frequent first. Those with invalid input are the client's fault.
    failed: Vec<(String, u64)>,
}

impl Recent {
    pub(super) fn of(state: &State, m: &Value) -> Self {
        let at = |frame: &Value| frame["at"].as_u64().unwrap_or_default();
        let last = state.frames.back().map_or(0, at);
        // A frame says what happened before it.
        let recent = state.frames.iter().filter(|frame| at(frame) + SECONDS * 1000 > last);
        let names = list(&state.hello["rejections"]);
        let mut failed: Vec<(String, u64)> =
            names.iter().map(|name| (name.as_str().unwrap_or_default().to_owned(), 0)).collect();
        let mut all = 0;
        for own in recent.filter_map(|frame| state.of_model(frame, m)) {
            all += list(&own["latency"]).iter().map(counted).sum::<u64>();
            for (count, (_, failed)) in list(&own["rejections"]).iter().zip(&mut failed) {
                *failed += count.as_u64().unwrap_or_default();
            }
        }
        failed.retain(|(name, count)| *count > 0 && name != "bad_query");
        failed.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Self { all, failed }
    }

    /// Whether requests were answered and none failed.
    pub(super) fn is_well(&self) -> bool {
        self.all > 0 && self.failed.is_empty()
    }

    /// The finding about a model, if requests fail.
    pub(super) fn finding(&self, name: &str) -> Option<Finding> {
        let (most, _) = self.failed.first()?;
        let failed: u64 = self.failed.iter().map(|(_, count)| count).sum();
        // Times of failed queries are counted too; a server that leaves them out would make the share larger than 1.
        let share = failed as f64 / self.all.max(failed) as f64;
        let reasons = self.failed.iter().take(REASONS);
        let reasons: Vec<_> = reasons.map(|(name, count)| format!("{count} {}", worded(name))).collect();
        let what = format!(
            "model {name}: {:.1} % of {} queries of the last {SECONDS} s fail: {}",
            100.0 * share,
            self.all.max(failed),
            reasons.join(", ")
        );
        let remedy = match most.as_str() {
            "queue_full" | "overload" => {
                "the load exceeds the capacity: add instances, batch (batch.max_size), or limit clients"
            }
            "deadline" => {
                "add instances, or let clients allow more time; parm doctor URL --seconds 60 names the causes of slowness"
            }
            _ => {
                "see the log of the frontend; parm_instance_failures_total counts the failures of each instance"
            }
        };
        Some(if share >= MUCH { Finding::fails(what, remedy) } else { Finding::worth(what, remedy) })
    }
}

/// Number of times in a histogram of pairs.
fn counted(histogram: &Value) -> u64 {
    list(histogram).iter().skip(1).step_by(2).filter_map(Value::as_u64).sum()
}

/// A reason of the event stream in words.
fn worded(reason: &str) -> &str {
    match reason {
        "queue_full" => "rejected (queue full)",
        "overload" => "rejected (overload)",
        "no_instance" => "without an instance",
        "deadline" => "late (deadline)",
        "failed" => "failed at instances",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::told;
    use super::*;

    fn state(frames: &[(u64, [u64; 6], u64)]) -> State {
        let mut state = State::default();
        let names = ["queue_full", "overload", "no_instance", "bad_query", "deadline", "failed"];
        state.take(&json!({"hello": {"rejections": names}}));
        for (at, rejections, all) in frames {
            let answered = all - rejections.iter().sum::<u64>();
            let latency = [json!([100, answered]), json!([80, rejections[0] + rejections[1]])];
            let latency =
                [latency[0].clone(), latency[1].clone(), json!([90, rejections[4] + rejections[5]])];
            state.take(&json!({"frame": {"at": at,
                "models": [{"m": 0, "latency": latency, "rejections": rejections}]}}));
        }
        state
    }

    fn said(frames: &[(u64, [u64; 6], u64)]) -> String {
        let recent = Recent::of(&state(frames), &json!(0));
        told(&recent.finding("a").into_iter().collect::<Vec<_>>())
    }

    #[test]
    fn overload_is_reported_with_share_and_reasons() {
        let frames: Vec<_> = (1..=5).map(|s| (1000 * s, [0, 70, 0, 0, 7, 0], 100)).collect();
        let said = said(&frames);
        assert!(
            said.starts_with(
                "FAIL model a: 77.0 % of 500 queries of the last 5 s fail: 350 rejected (overload), 35 late"
            ),
            "{said}"
        );
        assert!(said.contains("the load exceeds the capacity"), "{said}");
    }

    #[test]
    fn rare_failures_are_a_note_and_past_ones_nothing() {
        assert!(said(&[(1000, [0, 0, 0, 0, 1, 0], 500)]).starts_with("note model a: 0.2 % of 500"));
        assert_eq!(said(&[(1000, [0, 0, 0, 0, 0, 90], 100), (40_000, [0; 6], 100)]), "");
        assert_eq!(said(&[(1000, [0, 0, 0, 90, 0, 0], 100)]), "", "invalid input is the client's fault");
        assert_eq!(said(&[(1000, [0; 6], 0)]), "");
    }
}
