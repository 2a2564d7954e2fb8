//! The result of an experiment, as a table for people and as JSON for programs.

use std::fmt;

use parm_loadgen::statistics::Estimate;
use serde::Serialize;

use crate::experiments::{Case, Point, Verdict};
use crate::table;

/// The result of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Seed of the first repeat; each further one adds one.
    pub seed: u64,
    /// Runs of each cell.
    pub repeats: u32,
    /// Queries in a run, the warm-up included.
    pub queries: u64,
    /// One for each scenario, load and policy.
    pub rows: Vec<Row>,
}

/// The result of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What ran.
    #[serde(flatten)]
    pub case: Case,
    /// The quantiles and shares with their intervals.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// All its quantiles.
    pub spectrum: Vec<Point>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = "scenario|load|policy|p50 ms|p99 ms|p99.9 ms|gap ms|95 %|ratio|95 %|exact|hedged|approx|other|extra|busy|N";
        f.write_str(&table(head, 3, self.rows.iter().map(Row::cells).collect()))?;
        write!(
            f,
            "gap = p99.9 - p50; ratio = gap of equal / gap; shares in %; approx = reconstructed, backup, stand-in; seeds {} to {}; {} queries per run",
            self.seed,
            self.seed.wrapping_add(u64::from(self.repeats) - 1),
            self.queries,
        )
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let case = &self.case;
        let Verdict { p50_ms, p99_ms, p999_ms, gap_ms, gap_ratio, shares, extra, utilisation, count, .. } =
            &self.verdict;
        let value = |of: &Option<Estimate>| of.map_or("n/a".into(), |of| number(of.value));
        let within = |of: Estimate| format!("{}..{}", number(of.low), number(of.high));
        let mut cells = vec![case.scenario.clone(), case.intensity(), case.name()];
        cells.extend([p50_ms, p99_ms, p999_ms, gap_ms].map(value));
        cells.push(gap_ms.map_or("not enough data".into(), within));
        cells.extend(gap_ratio.map_or_else(Default::default, |ratio| [number(ratio.value), within(ratio)]));
        let approximate = shares.reconstructed + shares.backup + shares.stand_in;
        let other = shares.default + shares.rejected;
        let shares = [shares.exact, shares.hedged, approximate, other, *extra, *utilisation];
        cells.extend(shares.map(|share| format!("{:.2}", 100.0 * share)));
        cells.push(count.to_string());
        cells
    }
}

/// Formats three digits, the precision of a latency.
fn number(value: f64) -> String {
    match value.abs() {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
