//! The result of an evaluation, and tables of results: text for people, CSV for programs.

use std::fmt;

use parm_encoder::CodeSpec;
use parm_parity_models::bundle::{Accuracy, Scores};
use serde::Serialize;

use super::Metric;

/// The result of an evaluation. Scores are fractions of 1, or errors in the data's own unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The code.
    pub code: CodeSpec,
    /// The score of an answer.
    pub metric: Metric,
    /// Rows of data.
    pub rows: usize,
    /// Number of groups.
    pub groups: usize,
    /// Whether clients receive predictions unchanged if nothing is lost.
    pub systematic: bool,
    /// A_a: the score of answers without losses. For a non-systematic code these are approximations too.
    pub available: f64,
    /// The score of the deployed model without a code.
    pub deployed: f64,
    /// A_d: the score of reconstructions alone, by the number of losses in a group, starting with one.
    pub degraded: Vec<Degraded>,
    /// A_o: the score of all answers, by the fraction of unavailable outputs.
    pub overall: Vec<Overall>,
    /// The score of the best constant answer.
    pub constant_answer: f64,
    /// The score of the backup model, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<f64>,
    /// The mean distance between the confidence and the accuracy of reconstructions, at one loss per group; `None`
    /// unless answers are classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration_error: Option<f64>,
}

/// Scores of reconstructions alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Degraded {
    /// Losses in a group.
    pub lost: usize,
    /// A_d.
    pub score: f64,
    /// The score if the deployed model's answers count as right.
    pub agreement: f64,
    /// A_d of each slot.
    pub by_slot: Vec<f64>,
    /// Number of loss patterns that were tried on every group.
    pub patterns: usize,
    /// Number of reconstructions.
    pub reconstructions: u64,
    /// The standard error of A_a - A_d over the same rows; `None` for a single group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_error: Option<f64>,
}

/// The score of all answers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Overall {
    /// The fraction of outputs that are unavailable.
    pub unavailable: f64,
    /// A_o.
    pub score: f64,
}

impl Report {
    /// A_d at one loss per group.
    pub fn degraded(&self) -> f64 {
        self.degraded.first().map_or(0.0, |degraded| degraded.score)
    }

    /// A_o at a fraction of unavailable outputs. A loss costs a systematic code one answer. It costs any other code
    /// all answers of the group, as soon as one of its k + r outputs is missing.
    pub fn overall_at(&self, unavailable: f64) -> f64 {
        let outputs = (self.code.k + self.code.r) as i32;
        let degraded = if self.systematic { unavailable } else { 1.0 - (1.0 - unavailable).powi(outputs) };
        (1.0 - degraded) * self.available + degraded * self.degraded()
    }

    /// The score of all answers if every group loses exactly one: compares systematic and other codes on equal terms.
    pub fn one_loss_a_group(&self) -> f64 {
        let k = self.code.k as f64;
        let degraded = if self.systematic { 1.0 / k } else { 1.0 };
        (1.0 - degraded) * self.available + degraded * self.degraded()
    }

    /// The form that a bundle stores; `None` for errors, which are not fractions of 1.
    pub fn accuracy(&self) -> Option<Accuracy> {
        self.metric.ascends().then(|| Accuracy {
            metric: self.metric.to_string(),
            available: self.available,
            degraded: self.degraded(),
            overall: self
                .overall
                .iter()
                .map(|at| Scores { unavailable: at.unavailable, overall: at.score })
                .collect(),
            constant_answer: Some(self.constant_answer),
            backup: self.backup,
            reconstructions: self.degraded.first().map_or(0, |degraded| degraded.reconstructions),
        })
    }
}

/// Reports by name, in order of insertion.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Table {
    /// The rows.
    pub entries: Vec<Entry>,
}

/// A named report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// The evaluated code's name, such as the parity model's.
    pub name: String,
    /// Its report.
    #[serde(flatten)]
    pub report: Report,
}

/// The columns: names in CSV, and in text.
const COLUMNS: [(&str, &str); 14] = [
    ("name", "name"),
    ("code", "code"),
    ("k", "k"),
    ("r", "r"),
    ("metric", "metric"),
    ("deployed", "deployed"),
    ("available", "A_a"),
    ("degraded_one_lost", "A_d"),
    ("degraded_r_lost", "A_d, r lost"),
    ("overall_at_0_05", "A_o, f=.05"),
    ("overall_one_lost_a_group", "A_o, 1 a group"),
    ("agreement", "agreement"),
    ("constant_answer", "constant"),
    ("backup", "backup"),
];

impl Table {
    /// Adds a row.
    pub fn push(&mut self, name: impl Into<String>, report: Report) {
        self.entries.push(Entry { name: name.into(), report });
    }

    /// Comma-separated values with a header line.
    pub fn to_csv(&self) -> String {
        let header = COLUMNS.map(|(csv, _)| csv.to_owned());
        let mut writer = csv::Writer::from_writer(Vec::new());
        for record in std::iter::once(header).chain(self.entries.iter().map(|entry| entry.cells(1.0, 6))) {
            writer.write_record(&record).expect("records of one length, in memory");
        }
        String::from_utf8(writer.into_inner().expect("memory")).expect("text")
    }
}

impl Entry {
    fn cells(&self, factor: f64, digits: usize) -> [String; COLUMNS.len()] {
        let report = &self.report;
        let score = |score: f64| format!("{:.digits$}", factor * score);
        let maybe = |value: Option<f64>| value.map(score).unwrap_or_default();
        let most =
            report.degraded.last().filter(|degraded| degraded.lost > 1 && degraded.lost == report.code.r);
        let one = report.degraded.first();
        [
            self.name.clone(),
            report.code.kind.to_string(),
            report.code.k.to_string(),
            report.code.r.to_string(),
            report.metric.to_string(),
            score(report.deployed),
            score(report.available),
            maybe(one.map(|one| one.score)),
            maybe(most.map(|most| most.score)),
            score(report.overall_at(0.05)),
            score(report.one_loss_a_group()),
            maybe(one.map(|one| one.agreement)),
            score(report.constant_answer),
            maybe(report.backup),
        ]
    }
}

impl fmt::Display for Table {
    /// Accuracies in percent, errors in their unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.entries.iter().map(|entry| match entry.report.metric.ascends() {
            true => entry.cells(100.0, 2),
            false => entry.cells(1.0, 4),
        });
        let header = COLUMNS.map(|(_, name)| name.to_owned());
        let rows: Vec<[String; COLUMNS.len()]> = std::iter::once(header).chain(rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; COLUMNS.len()] = std::array::from_fn(width);
        for row in &rows {
            let mut line = format!("{:width$}", row[0], width = widths[0]);
            for (cell, width) in row.iter().zip(widths).skip(1) {
                line.push_str(&format!("  {cell:>width$}"));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
