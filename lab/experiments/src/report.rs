//! The result of an experiment, as a table for people and as JSON for programs.

use std::fmt;

use parm_loadgen::statistics::Estimate;
use serde::Serialize;

use crate::{Case, Spectrum, Verdict};

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
    pub spectrum: Spectrum,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.case.name().len()).max().unwrap_or(0).max(6);
        let wide = self.rows.iter().map(|row| row.case.scenario.len()).max().unwrap_or(0).max(10);
        writeln!(
            f,
            "{:<wide$} {:>5} {:<width$} {:>8} {:>8} {:>8} {:>8} {:>16} {:>7} {:>14} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>9}",
            "scenario",
            "load",
            "policy",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "gap ms",
            "95 %",
            "ratio",
            "95 %",
            "exact",
            "hedged",
            "approx",
            "other",
            "extra",
            "busy",
            "N",
        )?;
        self.rows.iter().try_for_each(|row| row.line(f, wide, width))?;
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
    fn line(&self, f: &mut fmt::Formatter<'_>, wide: usize, width: usize) -> fmt::Result {
        let case = &self.case;
        let Verdict { p50_ms, p99_ms, p999_ms, gap_ms, gap_ratio, shares, .. } = &self.verdict;
        let value = |of: &Option<Estimate>| of.map_or("n/a".into(), |of| number(of.value));
        let within = |of: &Option<Estimate>| {
            of.map_or("not enough data".into(), |of| format!("{}..{}", number(of.low), number(of.high)))
        };
        let approximate = shares.reconstructed + shares.backup + shares.stand_in;
        let other = shares.default + shares.rejected;
        write!(f, "{:<wide$} {:>5} {:<width$} ", case.scenario, case.intensity(), case.name())?;
        write!(f, "{:>8} {:>8} {:>8} ", value(p50_ms), value(p99_ms), value(p999_ms))?;
        write!(f, "{:>8} {:>16} ", value(gap_ms), within(gap_ms))?;
        let compared = gap_ratio.is_some();
        let bounds = if compared { within(gap_ratio) } else { String::new() };
        write!(f, "{:>7} {bounds:>14}", if compared { value(gap_ratio) } else { String::new() })?;
        for share in
            [shares.exact, shares.hedged, approximate, other, self.verdict.extra, self.verdict.utilisation]
        {
            write!(f, " {:>6.2}", 100.0 * share)?;
        }
        writeln!(f, " {:>9}", self.verdict.count)
    }
}

/// Formats three digits, the precision of a latency.
fn number(value: f64) -> String {
    match value.abs() {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
