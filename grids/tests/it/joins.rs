//! Joins of folders: whole results are joined, all others are reported.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use parm_grids::{Cell, Folder, Joined, Problem, Queue, join};
use tempfile::TempDir;

use crate::support::{cell, product};

/// Runs cells in a folder of their own, each with a result.
fn ran(root: &TempDir, name: &str, cells: &[(Cell, u32)]) -> PathBuf {
    let path = root.path().join(name);
    let folder = Folder::open(&path, "test", Duration::from_secs(60)).unwrap();
    for (cell, result) in cells {
        let queue = Queue::new(&folder, vec![cell.clone()]);
        queue.next(&|| false).unwrap().unwrap().finish(product(*result)).unwrap();
    }
    path
}

fn joined(folders: &[PathBuf], cells: &[Cell]) -> Joined {
    join(folders, "test", cells).unwrap()
}

#[test]
fn folders_are_joined_and_missing_cells_named() {
    let root = TempDir::new().unwrap();
    let (a, b) =
        (ran(&root, "a", &[(cell(1), 1), (cell(2), 2)]), ran(&root, "b", &[(cell(2), 2), (cell(9), 9)]));
    let joined = joined(&[a, b.clone()], &[cell(1), cell(2), cell(3)]);
    let results: Vec<&str> =
        [cell(1), cell(2)].iter().map(|cell| joined.records[&cell.key].result.get()).collect();
    assert_eq!(results, ["1", "2"]);
    assert_eq!(joined.problems, [Problem::Missing { name: "cell 3".into(), key: cell(3).key }]);
    assert_eq!(joined.foreign, [b.join(format!("cells/{}.json", cell(9).key))]);
}

#[test]
fn folder_that_does_not_exist_is_a_problem() {
    let root = TempDir::new().unwrap();
    let (a, b) = (ran(&root, "a", &[(cell(1), 1)]), root.path().join("mistyped"));
    let joined = joined(&[a, b.clone()], &[cell(1)]);
    assert_eq!(joined.records.len(), 1);
    assert_eq!(joined.problems, [Problem::NoFolder { path: b.join("cells") }]);
}

#[test]
fn torn_and_foreign_files_are_never_joined() {
    let root = TempDir::new().unwrap();
    let a = ran(&root, "a", &[(cell(1), 1), (cell(2), 2), (cell(3), 3), (cell(4), 4)]);
    let path = |number: u32| a.join(format!("cells/{}.json", cell(number).key));
    let whole = fs::read_to_string(path(1)).unwrap();
    let reasons = |text: &str| {
        fs::write(path(1), text).unwrap();
        let joined = joined(std::slice::from_ref(&a), &[cell(1)]);
        assert!(joined.records.is_empty(), "{text}");
        joined.problems[0].to_string()
    };
    for length in [0, 1, whole.len() / 2, whole.len() - 1] {
        assert!(reasons(&whole[..length]).contains("run its cell again"));
    }
    assert!(reasons(&whole.replace("\"result\":1", "\"result\":7")).contains("digest differs"));
    assert!(reasons(&fs::read_to_string(path(2)).unwrap()).contains("it is of cell"));
    fs::write(path(1), &whole).unwrap();
    assert_eq!(joined(std::slice::from_ref(&a), &[cell(1)]).problems, []);
    let other = join(&[a], "matrix", &[cell(1)]).unwrap();
    assert!(other.problems[0].to_string().contains("it is of a test"), "{:?}", other.problems);
}

#[test]
fn different_results_and_inputs_are_conflicts() {
    let root = TempDir::new().unwrap();
    let (a, b) = (ran(&root, "a", &[(cell(1), 1)]), ran(&root, "b", &[(cell(1), 2)]));
    let conflict = joined(&[a.clone(), b], &[cell(1)]);
    assert!(conflict.records.is_empty());
    assert!(matches!(conflict.problems[0], Problem::Differs { .. }), "{:?}", conflict.problems);

    let mut changed = cell(1);
    changed.inputs.insert("settings".into(), "changed".into());
    let foreign = joined(std::slice::from_ref(&a), &[changed]);
    assert!(matches!(&foreign.problems[0], Problem::OtherInputs { input, .. } if input == "settings"));

    // Without expected digests, all results must have the same ones.
    let mut other = cell(2);
    other.inputs.insert("settings".into(), "elsewhere".into());
    let c = ran(&root, "c", &[(other.clone(), 2)]);
    let open = |cell: Cell| Cell { inputs: Default::default(), ..cell };
    let mixed = joined(&[a, c], &[open(cell(1)), open(other)]);
    assert_eq!(mixed.records.len(), 1);
    assert!(matches!(mixed.problems[0], Problem::OtherInputs { .. }), "{:?}", mixed.problems);
}
