//! Matrices of runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use parm_parity_models::onnx::{Limits, Model};
use parm_random::Random;
use parm_training::fit::Stop;
use parm_training::matrix::{Cell, Matrix, MatrixObserver, Outcome, Place, Results, Runner, Runs, render};
use parm_training::{Array, Device, Error, Network, Teacher};

use crate::task::{SIDE, samples};

pub(crate) const FILE: &str = r#"
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

/// Counts the cells that begin.
#[derive(Default)]
struct Begun(Mutex<Vec<String>>);

impl MatrixObserver for Begun {
    fn began(&self, cell: &Cell, _: usize) {
        self.0.lock().unwrap().push(cell.to_string());
    }

    fn finished(&self, outcome: &Outcome) {
        assert!(outcome.degraded > 0.0 && outcome.available > 0.8, "{outcome:?}");
    }
}

pub(crate) fn matrix(text: &str) -> Result<Matrix, Error> {
    Matrix::parse(text, Path::new("small.toml"))
}

#[test]
fn matrix_runs_missing_cells_and_renders_existing_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, rows, seed) in [("train", 400, 2), ("test", 120, 3)] {
        write(folder.path(), name, rows, seed);
    }
    let place = Place { data: folder.path().into(), results: folder.path().join("results") };
    let run = |matrix: &Matrix| {
        let begun = Begun::default();
        let results = Runner {
            matrix,
            place: &place,
            jobs: 2,
            device: Device::Cpu,
            ask: &nobody,
            clock: &clock,
            observer: &begun,
            stop: &Stop::default(),
        }
        .run();
        (results.expect("it runs"), begun.0.into_inner().unwrap())
    };
    let all = matrix(FILE).expect("a matrix");
    // An unusable checkpoint, such as another version's, leads to a new start.
    let key = all.cells()[0].key(&all);
    fs::create_dir_all(place.results.join("cells")).expect("a folder");
    fs::write(place.results.join(format!("cells/{key}.checkpoint")), "of another time").expect("a file");
    let (results, begun) = run(&all);
    assert_eq!((results.all().count(), begun.len()), (5, 5));
    // An incomplete line, as after a crash of the machine, is ignored and does not affect other results.
    let path = place.results.join("outcomes.jsonl");
    let text = fs::read_to_string(&path).expect("results");
    let (rest, last) = text.trim_end().rsplit_once('\n').expect("lines");
    fs::write(&path, format!("{rest}\n{}", &last[..last.len() / 2])).expect("a torn file");
    assert_eq!(run(&all).1.len(), 1);
    assert_eq!(run(&all).1, Vec::<String>::new());

    // Pairs, held-out rows and costs are kept; with slots a coded query is as long as two.
    for outcome in results.all() {
        assert!(outcome.gap_error.is_some_and(|error| error < 0.2), "{outcome:?}");
        assert!(outcome.gap_held_out.is_some_and(|gap| gap.abs() < 0.8), "{outcome:?}");
        assert_eq!(outcome.agreement.is_some(), outcome.cell.recipe != "learned");
        let cost = match &*outcome.cell.recipe {
            "slots" => Some(&2.0),
            "weighted" => Some(&1.0),
            _ => None,
        };
        assert_eq!(outcome.costs.get("tract"), cost, "{outcome:?}");
    }
    assert!(
        !fs::read_dir(place.results.join("cells"))
            .expect("a folder")
            .any(|file| { file.expect("a file").path().extension().is_some_and(|ending| ending == "onnx") })
    );

    let more = matrix(&FILE.replace("k = [2]", "k = [2, 4]")).expect("a matrix");
    let tables = render(&[more], &Results::open(&place.results).expect("results"));
    let parts = [
        "## small, mlp",
        "| 2 | slots |",
        "| learned |",
        "| weighted, r=2 |",
        "Made up.",
        "not yet run",
        "2 / 2 /",
    ];
    for part in parts {
        assert!(tables.contains(part), "no '{part}' in\n{tables}");
    }
}

/// The row that is best on held-out rows is judged by its interval, even if another is better on the test set.
#[test]
fn recipe_is_chosen_on_held_out_rows_only() {
    let text = FILE
        .replace("data.small", "data.mnist")
        .replace("[\"small\"]", "[\"mnist\"]")
        .replace("[1, 2]", "[1]");
    let text = text.replace("[\"slots\", \"learned\"]", "[\"slots\", \"weighted\"]");
    let (matrix, folder) = (matrix(&text).expect("a matrix"), tempfile::tempdir().expect("a folder"));
    let page = |gap_error: Option<f64>| {
        let mut results = Results::open(&folder.path().join(format!("{gap_error:?}"))).expect("results");
        for cell in matrix.cells() {
            // slots: 0.3 points on the test set, 2 on held-out rows; weighted: 0.09 and 1.
            let (degraded, held) = if cell.recipe == "slots" { (0.987, 0.01) } else { (0.9891, 0.02) };
            let (key, gap_held_out) = (cell.key(&matrix), Some(held));
            let one = Outcome { cell, key, degraded, gap_error, gap_held_out, ..outcome() };
            results.add(one).expect("it is kept");
        }
        render(std::slice::from_ref(&matrix), &results)
    };
    let target = "- Target at k=2, a gap of 0.1: ";
    for (error, verdict) in [
        (Some(0.0005), "missed (`slots`, 0.30 ± 0.10)"),
        (Some(0.002), "open (`slots`, 0.30 ± 0.39)"),
        (None, "open (`slots`, 0.30)"),
    ] {
        let (page, wanted) = (page(error), format!("{target}{verdict}."));
        assert!(page.contains(&wanted), "no '{wanted}' in\n{page}");
    }
}

#[test]
fn results_without_pairs_are_run_again_and_not_judged() {
    let text = FILE
        .replace("data.small", "data.mnist")
        .replace("[\"small\"]", "[\"mnist\"]")
        .replace("[1, 2]", "[1]");
    let text = text.replace("[\"slots\", \"learned\"]", "[\"slots\"]");
    let (matrix, folder) = (matrix(&text).expect("a matrix"), tempfile::tempdir().expect("a folder"));
    for (name, rows, seed) in [("train", 400, 2), ("test", 120, 3)] {
        write(folder.path(), name, rows, seed);
    }
    let place = Place { data: folder.path().into(), results: folder.path().join("results") };
    let mut results = Results::open(&place.results).expect("results");
    for cell in matrix.cells() {
        let key = cell.key(&matrix);
        results.add(Outcome { cell, key, degraded: 0.9895, ..outcome() }).expect("it is kept");
    }
    let page = |results: &Results| render(std::slice::from_ref(&matrix), results);
    assert!(page(&results).contains("not judged, as nothing was kept of held-out rows for `slots`"));
    let observer = Begun::default();
    let results = run(&matrix, &place, &observer);
    assert_eq!(observer.0.into_inner().unwrap().len(), matrix.cells().len());
    assert!(!page(&results).contains("not judged") && page(&results).contains("(`slots`, "));
}

/// An empty result.
fn outcome() -> Outcome {
    Outcome {
        cell: matrix(FILE).expect("a matrix").cells().remove(0),
        key: String::new(),
        available: 0.99,
        degraded: 0.0,
        two_lost: None,
        gap_error: None,
        gap_held_out: None,
        agreement: None,
        calibration_error: None,
        costs: BTreeMap::new(),
        constant: 0.1,
        reconstructions: 100,
        epochs: 1,
        groups: 1,
        samples: 1,
        seconds: 1.0,
    }
}

#[test]
fn unknown_name_is_rejected_with_the_file() {
    let unknown = matrix(&FILE.replace(r#"["weighted"]"#, r#"["wieghted"]"#));
    let message = unknown.expect_err("the name is unknown").to_string();
    assert!(message.contains("small.toml") && message.contains("'wieghted'"), "{message}");
}

#[test]
fn key_of_existing_results_stays_the_same() {
    // A change of this number would invalidate all existing results.
    let mlp = include_str!("../../matrix/mlp.toml");
    let matrix = Matrix::parse(mlp, Path::new("mlp.toml")).expect("a matrix");
    assert_eq!(matrix.cells()[0].key(&matrix), "8eca4ce386d6991b");
}

/// The matrices in `training/matrix`.
fn boxed() -> Vec<Matrix> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/matrix");
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "toml")).collect();
    files.sort();
    let read = |path: &PathBuf| Matrix::parse(&fs::read_to_string(path).expect("text"), path);
    files.iter().map(|path| read(path).expect("a matrix")).collect()
}

#[test]
fn included_matrices_can_be_read() {
    assert!(boxed().len() > 5 && boxed().iter().all(|matrix| !matrix.cells().is_empty()));
}

/// The page must equal the one rendered from the committed results, without manual figures.
#[test]
fn page_of_results_equals_the_rendered_one() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let results = Results::open(&home.join("results")).expect("results");
    let (path, made) = (home.join("../docs/results/raw/accuracy.txt"), render(&boxed(), &results));
    #[allow(clippy::disallowed_methods)] // a switch for the people who run the tests, not configuration
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &made).expect("the page is written");
    }
    let again = "parm train matrix training/matrix/*.toml --render docs/results/raw/accuracy.txt";
    let page = fs::read_to_string(path).expect("the page");
    assert!(page == made, "the page differs from the results: run {again}");
}

#[test]
fn key_depends_on_the_rows_but_not_on_their_folder() {
    let key = |text: &str| {
        let matrix = matrix(text).expect("a matrix");
        matrix.cells()[0].key(&matrix)
    };
    let plain = key(FILE);
    assert_eq!(key(&FILE.replace("{}/train-images", "{}/elsewhere/train-images")), plain);
    let fewer = key(&FILE.replace("{}/train-labels", "{}/train-labels?rows=0..300"));
    assert_ne!(fewer, plain);
    assert_ne!(key(&FILE.replace("{}/train-labels", "{}/train-labels?rows=0..200")), fewer);
    assert_ne!(key(&FILE.replace("note =", "measure = \"agreement\"\nnote =")), plain);
}

const GIVEN: &str = r#"
[data.small]
train = "idx:{}/train-images,{}/train-labels"
test = "idx:{}/test-images,{}/test-labels"
measure = "agreement"

[deployed.theirs]
file = "{}/theirs.onnx"
network = "mlp"

[recipe.slots]
start = "scratch"
held_out = 60
run = { epochs = 6, batch = 16, rate = 0.003 }

[[cells]]
data = ["small"]
base = ["theirs"]
recipe = ["slots"]
k = [2]
seed = [1]
"#;

#[test]
fn answers_of_a_supplied_model_are_the_truth() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, rows, seed) in [("train", 400, 2), ("test", 120, 3)] {
        write(folder.path(), name, rows, seed);
    }
    fs::write(folder.path().join("theirs.onnx"), crate::task::deployed()).expect("a model");
    let place = Place { data: folder.path().into(), results: folder.path().join("results") };
    let matrix = matrix(GIVEN).expect("a matrix");
    let asked = AtomicUsize::new(0);
    let ask = |path: &Path| -> Result<Box<dyn Teacher>, Error> {
        asked.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Network::new(Model::open(path, &Limits::default())?, Device::Cpu)?))
    };
    let (observer, stop) = (Begun::default(), Stop::default());
    let runner = Runner {
        matrix: &matrix,
        place: &place,
        jobs: 1,
        device: Device::Cpu,
        ask: &ask,
        clock: &clock,
        observer: &observer,
        stop: &stop,
    };
    let results = runner.run().expect("it runs");
    let outcome = results.all().next().expect("a result");
    assert_eq!((outcome.available, asked.into_inner()), (1.0, 1));
    assert!(outcome.degraded > outcome.constant + 0.2, "{outcome:?}");
    let tables = render(std::slice::from_ref(&matrix), &results);
    assert!(tables.contains("Measured: agreement with the deployed model"), "{tables}");
}

#[test]
fn supplied_model_rejects_augmentation_and_learned_codes() {
    let refused = |text: &str| matrix(text).expect_err("it must be rejected").to_string();
    let message = refused(&GIVEN.replace("held_out", "augment = { shift = 1 }\nheld_out"));
    assert!(message.contains("'theirs' is asked once") && message.contains("'slots'"), "{message}");
    let message = refused(&GIVEN.replace("[recipe.slots]\nstart = \"scratch\"", "[code.slots]"));
    assert!(message.contains("goes through its graph"), "{message}");
    let message = refused(&GIVEN.replace("\"idx:{}/train", "\"ids:{}/train"));
    assert!(message.contains("unknown kind 'ids'"), "{message}");
}

const BOXES: &str = r#"
[data.boxes]
train = "npy:{}/rows.npy,{}/boxes.npy?rows=0..300"
test = "npy:{}/rows.npy,{}/boxes.npy?rows=300..400"
measure = "iou"

[base.mlp]
held_out = 40
run = { epochs = 20, batch = 16, rate = 0.003 }

[recipe.slots]
meaning = "values"
held_out = 40
run = { epochs = 10, batch = 16, rate = 0.003 }

[[cells]]
data = ["boxes"]
base = ["mlp"]
recipe = ["slots"]
k = [2]
seed = [1]
"#;

#[test]
fn boxes_are_measured_by_intersection_over_union() {
    let folder = tempfile::tempdir().expect("a folder");
    // A row contains the place of its box; boxes have one size and are anywhere.
    let corners = Random::new(5).uniforms(0.3, 800);
    let boxes = corners.chunks(2).flat_map(|at| [at[0] + 0.3, at[1] + 0.3, at[0] + 0.7, at[1] + 0.7]);
    let (rows, boxes) = (npy(400, 2, corners.iter().copied()), npy(400, 4, boxes));
    fs::write(folder.path().join("rows.npy"), rows).expect("rows");
    fs::write(folder.path().join("boxes.npy"), boxes).expect("boxes");
    let place = Place { data: folder.path().into(), results: folder.path().join("results") };
    let matrix = matrix(BOXES).expect("a matrix");
    let observer = Begun::default();
    let results = run(&matrix, &place, &observer);
    let outcome = results.all().next().expect("a result");
    assert!(outcome.available > 0.8 && outcome.degraded > outcome.constant + 0.1, "{outcome:?}");
    // Held-out rows are scored by explained variance, which is not comparable with a gap of boxes.
    assert_eq!(outcome.gap_held_out, None);
    let tables = render(std::slice::from_ref(&matrix), &results);
    assert!(tables.contains("the mean box as every answer"), "{tables}");
}

/// Runs the missing cells, one after the other.
fn run(matrix: &Matrix, place: &Place, observer: &Begun) -> Results {
    let stop = Stop::default();
    let runner = Runner {
        matrix,
        place,
        jobs: 1,
        device: Device::Cpu,
        ask: &nobody,
        clock: &clock,
        observer,
        stop: &stop,
    };
    runner.run().expect("it runs")
}

/// Returns the length of a coded query relative to a query as the cost, if the models' files exist.
pub(crate) fn clock(runs: Runs<'_>) -> BTreeMap<String, f64> {
    for file in [runs.deployed, runs.parity] {
        Model::open(file, &Limits::default()).expect("a model");
    }
    let share = runs.coded.data().len() as f64 / runs.query.data().len() as f64;
    BTreeMap::from([("tract".into(), share)])
}

/// Fails if a supplied model is opened.
pub(crate) fn nobody(path: &Path) -> Result<Box<dyn Teacher>, Error> {
    panic!("{} was asked", path.display())
}

/// An array in numpy's format.
fn npy(rows: usize, width: usize, values: impl Iterator<Item = f32>) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(values.flat_map(f32::to_le_bytes));
    file
}

/// Images of the small task as idx files.
pub(crate) fn write(folder: &Path, name: &str, rows: usize, seed: u64) {
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
