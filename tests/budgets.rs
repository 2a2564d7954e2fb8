//! Keeps the house from growing: each folder has a budget of Rust lines, tests included.
//!
//! A change that makes a folder smaller lowers its budget. To raise one, write a page in docs/decisions that says why.

use std::fs;

use crate::support::process::root;
use crate::support::workspace::files;

/// Folders, their budget, and the budget that is wanted ([why](docs/decisions/19-size.md)).
const BUDGETS: &[(&[&str], usize, usize)] = &[
    (
        &["core/random", "core/shares", "core/grants", "core/durations", "core/settings", "core/dispatcher"],
        11_600,
        13_000,
    ),
    (&["frontend"], 23_700, 24_000),
    (&["wire"], 24_200, 20_000),
    (&["backend"], 9_950, 9_000),
    (&["parity-models", "stand-ins"], 16_650, 14_500),
    (&["training"], 13_850, 11_000),
    (&["encoder"], 2_450, 2_400),
    (&["loadgen"], 4_000, 4_000),
    (&["lab", "core/workload"], 15_450, 12_000),
    (&["src"], 12_600, 9_500),
    (&["tests", "fuzz", "examples"], 7_850, 8_000),
];

fn lines(folder: &str) -> usize {
    let files = files(&root().join(folder), "rs");
    files.iter().map(|file| fs::read_to_string(file).unwrap().lines().count()).sum()
}

#[test]
fn folders_keep_their_budgets() {
    let mut over = Vec::new();
    for (folders, budget, wanted) in BUDGETS {
        let lines: usize = folders.iter().map(|folder| lines(folder)).sum();
        if lines > *budget {
            over.push(format!("{}: {lines} lines, budget {budget}, wanted {wanted}", folders.join(", ")));
        }
    }
    assert!(over.is_empty(), "lines of Rust grew over their budget:\n{}", over.join("\n"));
}
