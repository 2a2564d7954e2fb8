//! The dispatcher in virtual time, and what is learned from it.
//!
//! [`world`] drives the dispatcher that serves queries, through servers, faults and time. [`simulator`] plays a policy there, and
//! gives a tally. [`experiments`] compares policies, in virtual time or with real processes, and [`tuner`] searches for the best
//! settings and explains the tail of a recording. [`world::rivals`] has the load balancers and hedges of others.
//!
//! This crate links no server and no transport: who runs processes passes a function that connects to them.

mod error;
pub mod experiments;
pub mod simulator;
pub mod tuner;
pub mod world;

pub use error::Error;

/// A table with a head such as `name|p50 ms`: each column is as wide as its content, the first so many are texts, the others
/// numbers.
fn table(head: &str, texts: usize, rows: Vec<Vec<String>>) -> String {
    let head = head.split('|').map(str::to_owned).collect();
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let written = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column < texts { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join(" ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(written).collect()
}
