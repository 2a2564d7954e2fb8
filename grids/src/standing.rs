//! The progress of a grid, read from a folder that is still being filled.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::{Cell, Error, Folder, Found};

/// The state of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// It has a result.
    Done {
        /// Milliseconds of its run.
        took_ms: u64,
    },
    /// A process runs it.
    Held {
        /// The process.
        holder: String,
    },
    /// Its result file is not usable.
    Damaged {
        /// The reason.
        reason: String,
    },
    /// It waits.
    Free,
}

/// A cell with its state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// The cell, with its estimate corrected by finished cells.
    #[serde(flatten)]
    pub cell: Cell,
    /// Its state.
    #[serde(flatten)]
    pub state: State,
}

/// All cells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The cells, in order.
    pub cells: Vec<Standing>,
    /// Cells with results.
    pub done: usize,
    /// Estimated seconds of all cells without a result, one after the other.
    pub left_s: f64,
}

impl Summary {
    /// Reads the state of these cells.
    pub fn read(folder: &Folder, cells: &[Cell]) -> Result<Self, Error> {
        let listing = folder.listing()?;
        let state = |cell: &Cell| -> Result<State, Error> {
            let found = if listing.has_result(&cell.key) { folder.found(cell) } else { Found::Nothing };
            Ok(match found {
                Found::Whole(record) if !record.is_of_this_version() => {
                    State::Damaged { reason: format!("it is of parm {}", record.version) }
                }
                Found::Whole(record) => match record.other_input(cell) {
                    None => State::Done { took_ms: record.took_ms },
                    Some(input) => State::Damaged { reason: format!("it is from other inputs ({input})") },
                },
                Found::Damaged { reason } => State::Damaged { reason },
                Found::Nothing => {
                    let held = folder.leases().holder_of(&cell.key, listing.generation(&cell.key));
                    let held = held.map_err(Error::file("read", &folder.result_path(&cell.key)))?;
                    held.map_or(State::Free, |holder| State::Held { holder })
                }
            })
        };
        let states = cells.iter().map(state).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::of(cells, states))
    }

    fn of(cells: &[Cell], states: Vec<State>) -> Self {
        let pace = Pace::of(cells, &states);
        let estimated = |cell: &Cell| Cell { estimate_s: pace.seconds(cell), ..cell.clone() };
        let cells: Vec<Standing> =
            cells.iter().zip(states).map(|(cell, state)| Standing { cell: estimated(cell), state }).collect();
        let is_done = |standing: &&Standing| matches!(standing.state, State::Done { .. });
        let done = cells.iter().filter(is_done).count();
        let left = cells.iter().filter(|standing| !is_done(standing));
        let left_s = left.map(|standing| standing.cell.estimate_s).sum();
        Self { cells, done, left_s }
    }
}

/// Measured seconds per estimated second, by group and overall.
struct Pace {
    groups: BTreeMap<String, (f64, f64)>,
}

impl Pace {
    fn of(cells: &[Cell], states: &[State]) -> Self {
        let mut groups: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for (cell, state) in cells.iter().zip(states) {
            if let State::Done { took_ms } = state {
                let sums = groups.entry(cell.group.clone()).or_default();
                *sums = (sums.0 + *took_ms as f64 / 1e3, sums.1 + cell.estimate_s);
            }
        }
        Self { groups }
    }

    fn seconds(&self, cell: &Cell) -> f64 {
        let all = || self.groups.values().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let (took, estimated) = self.groups.get(&cell.group).copied().unwrap_or_else(all);
        if estimated > 0.0 { cell.estimate_s * took / estimated } else { cell.estimate_s }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Standing { cell, state } in &self.cells {
            let (key, seconds, name) = (&cell.key, cell.estimate_s, &cell.name);
            match state {
                State::Done { took_ms } => {
                    writeln!(f, "{key}  done {:>8.1} s  {name}", *took_ms as f64 / 1e3)?;
                }
                State::Free => writeln!(f, "{key}  free {seconds:>8.1} s  {name}")?,
                State::Held { holder } => writeln!(f, "{key}  held {seconds:>8.1} s  {name}, by {holder}")?,
                State::Damaged { reason } => {
                    writeln!(f, "{key}  damaged: {reason}  {name}")?;
                }
            }
        }
        let (done, all, left) = (self.done, self.cells.len(), self.left_s);
        write!(
            f,
            "{done} of {all} cells have results; the others take about {left:.0} s, one after the other"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(key: &str, group: &str, estimate_s: f64) -> Cell {
        let inputs = BTreeMap::new();
        Cell { key: key.into(), name: key.into(), group: group.into(), estimate_s, inputs }
    }

    #[test]
    fn estimates_follow_finished_cells_of_the_same_group() {
        let cells = [cell("a", "small", 1.0), cell("b", "small", 2.0), cell("c", "large", 4.0)];
        let estimates =
            |summary: Summary| summary.cells.iter().map(|one| one.cell.estimate_s).collect::<Vec<_>>();
        let free = || vec![State::Free; 3];
        assert_eq!(estimates(Summary::of(&cells, free())), [1.0, 2.0, 4.0]);
        let mut states = free();
        states[0] = State::Done { took_ms: 3_000 };
        let summary = Summary::of(&cells, states.clone());
        assert_eq!((summary.done, summary.left_s), (1, 6.0 + 12.0), "no large cell is finished");
        states[2] = State::Done { took_ms: 8_000 };
        assert_eq!(Summary::of(&cells, states).left_s, 6.0);
    }
}
