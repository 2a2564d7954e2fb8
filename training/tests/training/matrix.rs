//! Matrices of runs.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use parm_training::fit::Stop;
use parm_training::matrix::{Cell, Matrix, Observer, Outcome, Place, Results, Runner, render};
use parm_training::{Array, Error};

use crate::task::{SIDE, samples};

const FILE: &str = r#"
[data.small]
train = "idx:{}/train-images,{}/train-labels"
test = "idx:{}/test-images,{}/test-labels"
note = "Made up."

[base.mlp]
held_out = 60
run = { epochs = 2, batch = 16, rate = 0.003 }

[recipe.slots]
held_out = 60
run = { epochs = 2, batch = 16, rate = 0.003 }

[recipe.weighted]
encoder = "weighted"
held_out = 60
run = { epochs = 2, batch = 16, rate = 0.003 }

[code.learned]
held_out = 60
run = { epochs = 2, batch = 16, rate = 0.003 }

[[cells]]
data = ["small"]
base = ["mlp"]
recipe = ["slots", "learned"]
k = [2]
seed = [1, 2]

[[cells]]
data = ["small"]
base = ["mlp"]
recipe = ["weighted"]
k = [3]
r = [2]
seed = [1]
"#;

/// Counts what begins.
#[derive(Default)]
struct Begun(Mutex<Vec<String>>);

impl Observer for Begun {
    fn began(&self, cell: &Cell, _: usize) {
        self.0.lock().unwrap().push(cell.to_string());
    }

    fn finished(&self, outcome: &Outcome) {
        assert!(outcome.degraded > 0.0 && outcome.available > 0.8, "{outcome:?}");
    }
}

fn matrix(text: &str) -> Result<Matrix, Error> {
    Matrix::parse(text, Path::new("small.toml"))
}

#[test]
fn a_matrix_fills_what_is_missing_and_shows_what_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, rows, seed) in [("train", 400, 2), ("test", 120, 3)] {
        write(folder.path(), name, rows, seed);
    }
    let place = Place { data: folder.path().into(), results: folder.path().join("results") };
    let run = |matrix: &Matrix| {
        let begun = Begun::default();
        let results =
            Runner { matrix, place: &place, jobs: 2, observer: &begun, stop: &Stop::default() }.run();
        (results.expect("it runs"), begun.0.into_inner().unwrap())
    };
    let all = matrix(FILE).expect("a matrix");
    let (results, begun) = run(&all);
    assert_eq!((results.all().count(), begun.len()), (5, 5));
    // A line that was cut off when the machine went down is no result, and spoils none.
    let path = place.results.join("outcomes.jsonl");
    let text = fs::read_to_string(&path).expect("results");
    let (rest, last) = text.trim_end().rsplit_once('\n').expect("lines");
    fs::write(&path, format!("{rest}\n{}", &last[..last.len() / 2])).expect("a torn file");
    assert_eq!(run(&all).1.len(), 1);
    assert_eq!(run(&all).1, Vec::<String>::new());

    let more = matrix(&FILE.replace("k = [2]", "k = [2, 4]")).expect("a matrix");
    let tables = render(&[more], &Results::open(&place.results).expect("results"));
    for part in
        ["## small, mlp", "| slots |", "| learned |", "weighted, r=2", "Made up.", "not yet run", "2 / 2 /"]
    {
        assert!(tables.contains(part), "no '{part}' in\n{tables}");
    }
}

#[test]
fn a_name_that_nothing_has_is_refused_with_the_file() {
    let unknown = matrix(&FILE.replace(r#"["weighted"]"#, r#"["wieghted"]"#));
    let message = unknown.expect_err("nothing is called so").to_string();
    assert!(message.contains("small.toml") && message.contains("'wieghted'"), "{message}");
}

/// Images of the small task as idx files.
fn write(folder: &Path, name: &str, rows: usize, seed: u64) {
    let samples = samples(rows, seed);
    let pixel = |&value: &f32| ((value + 0.5) * 140.0).clamp(0.0, 255.0) as u8;
    let pixels: Array<u8> = samples.inputs.map(pixel);
    let labels = samples.labels.expect("labels").iter().map(|&label| label as u8).collect();
    let idx = |sizes: &[usize], data: Vec<u8>| {
        let mut file = vec![0, 0, 8, sizes.len() as u8];
        sizes.iter().for_each(|&size| file.extend((size as u32).to_be_bytes()));
        file.extend(data);
        file
    };
    fs::write(folder.join(format!("{name}-images")), idx(&[rows, SIDE, SIDE], pixels.into_data()))
        .expect("images");
    fs::write(folder.join(format!("{name}-labels")), idx(&[rows], labels)).expect("labels");
}
