//! Keeps the house from growing: each folder has a budget of Rust lines, tests included.
//!
//! A change that makes a folder smaller lowers its budget. To raise one, write a page in docs/decisions that says why.

use std::fs;

use crate::support::process::root;
use crate::support::workspace::files;

/// Folders, their budget, and the budget that is wanted ([why](docs/decisions/19-size.md)).
const BUDGETS: &[(&[&str], usize, usize)] = &[
    (
        &[
            "core/random",
            "core/shares",
            "core/grants",
            "core/charts",
            "core/durations",
            "core/settings",
            "core/dispatcher",
        ],
        12_300,
        13_000,
    ),
    (&["frontend"], 29_200, 24_000),
    (&["wire"], 27_200, 20_000),
    (&["backend"], 11_700, 9_000),
    (&["parity-models", "stand-ins"], 18_600, 14_500),
    (&["training"], 16_700, 11_000),
    (&["encoder"], 2_600, 2_400),
    (&["loadgen"], 4_600, 4_000),
    (&["lab", "core/workload"], 17_100, 12_000),
    (&["src"], 13_700, 9_500),
    (&["tests", "fuzz", "examples"], 10_600, 8_000),
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
