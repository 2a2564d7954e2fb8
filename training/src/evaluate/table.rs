//! Tables of reports: text for people, CSV for programs.

use std::fmt;

use serde::Serialize;

use super::Report;

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
