//! Tables of comma-separated values, with a line of column names.
//!
//! Columns of numbers are used as they are. A column of words becomes one column per word, with 1 for the rows that
//! have it. The words are sorted, so the columns do not depend on the order of rows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use csv::{ReaderBuilder, StringRecord};

use super::part::Options;
use super::source::content;
use super::{Limit, Samples, Unusable};
use crate::Array;

/// Maximum different words in a column: a column with more holds names, or numbers with mistakes.
const MOST_WORDS: usize = 256;

/// The column to predict.
pub(super) struct TargetColumn {
    /// The column's name; the last column if `None`.
    column: Option<String>,
    /// Whether to predict it as a number rather than as a class.
    value: bool,
}

impl TargetColumn {
    pub(super) fn read(options: &Options) -> Result<Self, Unusable> {
        let value = match options.text("as").as_deref() {
            None | Some("class") => false,
            Some("value") => true,
            Some(other) => {
                let message = format!("'{other}' is not class or value");
                return Err(Unusable::Setting { name: "as".into(), message });
            }
        };
        Ok(Self { column: options.text("target"), value })
    }
}

pub(super) fn read(path: &Path, target: &TargetColumn, limit: Limit) -> Result<Samples, Unusable> {
    let bytes = content(path, limit)?;
    let mut reader = ReaderBuilder::new().trim(csv::Trim::All).from_reader(&bytes[..]);
    let broken = |error: csv::Error| {
        let line = error.position().map_or(1, csv::Position::line);
        Unusable::Line { path: path.into(), line, detail: format!("{error}") }
    };
    let names: Vec<String> = reader.headers().map_err(broken)?.iter().map(str::to_owned).collect();
    let records: Vec<StringRecord> = reader.records().collect::<Result<_, _>>().map_err(broken)?;
    let table = Sheet { path, names, records };
    let target_column = table.column(target.column.as_deref())?;
    let rows = table.records.len();
    let mut features = Vec::new();
    for column in (0..table.names.len()).filter(|column| *column != target_column) {
        features.extend(table.features(column)?);
        // Checked within the loop: a column of words becomes up to 256 columns of numbers.
        if (4 * rows * features.len()) as u64 > limit.0 {
            return Err(Unusable::TooLarge { path: path.into(), limit: limit.0 });
        }
    }
    if features.is_empty() && rows > 0 {
        let detail = "it has no column but the target".into();
        return Err(Unusable::Format { path: path.into(), expected: "a table to learn from", detail });
    }
    let data = (0..rows).flat_map(|row| features.iter().map(move |column| column[row])).collect();
    let inputs = Array::new(vec![rows, features.len()], data).expect("a value of each column for each row");
    match target.value {
        true => {
            let values = table.numbers(target_column)?;
            Samples::with_values(inputs, Array::new(vec![rows, 1], values).expect("one each"))
        }
        false => Samples::new(inputs, Some(table.classes(target_column)?)),
    }
}

struct Sheet<'a> {
    path: &'a Path,
    names: Vec<String>,
    records: Vec<StringRecord>,
}

impl Sheet<'_> {
    /// The column called `name`, or the last.
    fn column(&self, name: Option<&str>) -> Result<usize, Unusable> {
        let Some(name) = name else { return Ok(self.names.len().saturating_sub(1)) };
        self.names.iter().position(|known| known == name).ok_or_else(|| Unusable::NoColumn {
            path: self.path.into(),
            name: name.into(),
            available: self.names.clone(),
        })
    }

    /// A column as numbers: itself, or one column per word.
    fn features(&self, column: usize) -> Result<Vec<Vec<f32>>, Unusable> {
        let cells = || self.records.iter().map(|record| &record[column]);
        let numbers = cells().filter(|cell| cell.parse::<f32>().is_ok()).count();
        // One number makes it a column of numbers, so that an invalid cell is reported.
        if numbers > 0 || self.records.is_empty() {
            return Ok(vec![self.numbers(column)?]);
        }
        let words: BTreeSet<&str> = cells().collect();
        if words.len() > MOST_WORDS {
            let name = &self.names[column];
            let detail = format!("column '{name}' has {} different words: remove it", words.len());
            return Err(Unusable::Line { path: self.path.into(), line: 1, detail });
        }
        let has = |word: &str| cells().map(|cell| f32::from(u8::from(cell == word))).collect();
        Ok(words.into_iter().map(has).collect())
    }

    fn numbers(&self, column: usize) -> Result<Vec<f32>, Unusable> {
        let numbers = self.records.iter().map(|record| {
            let cell = &record[column];
            let value = cell.parse::<f32>().ok().filter(|value| value.is_finite());
            value.ok_or_else(|| {
                let line = record.position().map_or(0, csv::Position::line);
                let detail = format!("'{cell}' in column '{}' is not a finite number", self.names[column]);
                Unusable::Line { path: self.path.into(), line, detail }
            })
        });
        numbers.collect()
    }

    /// A column as classes: integers from 0 on are kept, words are numbered in sorted order.
    fn classes(&self, column: usize) -> Result<Vec<usize>, Unusable> {
        let cells = || self.records.iter().map(|record| &record[column]);
        if let Ok(classes) = cells().map(str::parse).collect::<Result<Vec<usize>, _>>()
            && classes.iter().all(|class| *class < MOST_WORDS * MOST_WORDS)
        {
            return Ok(classes);
        }
        let words: BTreeSet<&str> = cells().collect();
        if words.len() > MOST_WORDS {
            let name = &self.names[column];
            let detail =
                format!("column '{name}' has {} different values: add as=value to predict it", words.len());
            return Err(Unusable::Line { path: self.path.into(), line: 1, detail });
        }
        let numbers: BTreeMap<&str, usize> =
            words.into_iter().enumerate().map(|(at, word)| (word, at)).collect();
        Ok(cells().map(|cell| numbers[cell]).collect())
    }
}
