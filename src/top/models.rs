//! The models of a frontend with their figures over the frames of the last minute.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

use super::state::State;

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
