//! A search for stand-ins of small classifiers, with and without a school.

use parm_parity_models::bundle::{Calibration, Meaning};
use parm_parity_models::onnx::{Builder, Conv, Dense, Value};
use parm_random::Random;

use super::*;
use crate::measure::{Source, Sureness};
use crate::testing::{Alone, Stage, candidate, setting};

pub(super) const WISH: Wish = Wish {
    cost: 0.9,
    meanings: Vec::new(),
    label_output: None,
    labels: None,
    calibration: 16,
    judged: 1_000,
    fitted: 20,
    in_time: false,
    seed: 1,
    measure: Duration::from_millis(100),
    time: None,
    brought: Vec::new(),
};

fn pictures(count: usize) -> Tensor {
    let values = Random::new(9).normals(count * 64);
    Tensor::from_f32([count, 1, 8, 8].as_slice(), &values).unwrap()
}

fn classifier(classes: usize) -> Model {
    let mut builder = Builder::new("classifier", 7);
    let x = builder.input(Value::batch_of_f32("x", &[1, 8, 8]));
    let conv = builder.conv("conv", &x, Conv::same(1, 4, 3)).unwrap();
    let idle = builder.node("Identity", "idle", &[&conv]);
    let flat = builder.node("Flatten", "flat", &[&idle]);
    let scores = builder.dense("scores", &flat, Dense { inputs: 256, outputs: classes }).unwrap();
    builder.node("Softmax", "y", &[&scores]);
    builder.output(Value::batch_of_f32("y", &[classes]));
    builder.build().unwrap()
}

fn found(count: usize, wish: &Wish) -> Result<Frontier, Error> {
    at_school(count, wish, None)
}

fn at_school(count: usize, wish: &Wish, school: Option<&dyn School>) -> Result<Frontier, Error> {
    found_for(&classifier(3), count, wish, school)
}

fn found_for(
    model: &Model,
    count: usize,
    wish: &Wish,
    school: Option<&dyn School>,
) -> Result<Frontier, Error> {
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model.bytes()).unwrap();
    let rows = stage.rows(model, &[pictures(count)]);
    make(&stage.workshop, (&path, model), &rows, wish, &Alone, school)
}

#[test]
fn every_family_is_judged_or_rejected_with_a_reason() {
    let labels = Some(classes(60));
    let found = found(60, &Wish { labels, ..WISH }).unwrap();
    let Setting { calibration_rows, fitted_rows, judged_rows, .. } = found.setting;
    assert_eq!((calibration_rows, fitted_rows, judged_rows), (16, 20, 24));
    assert_eq!(found.setting.meanings.main(), Meaning::Probabilities);
    for family in ["exact", "int8", "int8-convolutions", "int8-products", "pruned"] {
        let judged = found.candidates.iter().find(|candidate| candidate.name == family);
        let refused = found.refused.iter().find(|refused| refused.name == family);
        assert!(judged.is_some() != refused.is_some(), "{family}: {found}");
        assert!(
            judged.is_none_or(|one| one.compared.agreement.value > 0.7 && one.compared.accuracy.is_some()),
            "{found}"
        );
    }
    assert!(found.chosen().is_none_or(|chosen| chosen.cost[0] <= 0.9));
    assert!(found.to_svg().starts_with("<svg"));
}

#[test]
fn supplied_model_is_measured_when_its_signature_matches() {
    let brought = [("from-same", 3), ("from-other", 4)]
        .map(|(name, classes)| (name.to_owned(), classifier(classes).bytes().clone()));
    let found = found(60, &Wish { brought: brought.to_vec(), ..WISH }).unwrap();
    let other = found.refused.iter().find(|refused| refused.name == "from-other").unwrap();
    assert!(other.reason.contains("from-other") && other.reason.contains('4'), "{}", other.reason);
    // Two runs of one network differ in time by chance.
    let judged = found.candidates.iter().find(|candidate| candidate.name == "from-same");
    assert!(
        judged.is_none_or(|one| one.compared.agreement.value == 1.0 && one.sureness.is_some()),
        "{found}"
    );
    assert!(judged.is_some() || found.refused.iter().any(|one| one.name == "from-same"), "{found}");
}

#[test]
fn supplied_model_with_reordered_outputs_is_rejected() {
    let two = |names: [&str; 2]| {
        let mut builder = Builder::new("two", 5);
        let x = builder.input(Value::batch_of_f32("x", &[1, 8, 8]));
        let flat = builder.node("Flatten", "flat", &[&x]);
        for name in ["a", "b"] {
            builder.dense(name, &flat, Dense { inputs: 64, outputs: 3 }).unwrap();
        }
        for name in names {
            builder.output(Value::batch_of_f32(name, &[3]));
        }
        builder.build().unwrap()
    };
    let brought = vec![("from-turned".to_owned(), two(["b", "a"]).bytes().clone())];
    let found = found_for(&two(["a", "b"]), 60, &Wish { brought, ..WISH }, None).unwrap();
    let turned = found.refused.iter().find(|refused| refused.name == "from-turned").unwrap();
    assert!(turned.reason.starts_with("its outputs are in another order"), "{}", turned.reason);
}

#[test]
fn infinite_score_of_the_deployed_model_is_refused() {
    let mut builder = Builder::new("masked", 5);
    let x = builder.input(Value::batch_of_f32("x", &[1, 8, 8]));
    let flat = builder.node("Flatten", "flat", &[&x]);
    let scores = builder.dense("scores", &flat, Dense { inputs: 64, outputs: 3 }).unwrap();
    let kept = builder.node("Relu", "kept", &[&scores]);
    builder.node("Log", "y", &[&kept]);
    builder.output(Value::batch_of_f32("y", &[3]));
    let found = found_for(&builder.build().unwrap(), 60, &WISH, None);
    assert!(matches!(found, Err(Error::NotFinite { .. })), "{found:?}");
}

/// A school that teaches nothing, or fails.
struct Lazy(bool, Option<Rows>);

impl School for Lazy {
    fn rows(&self) -> Option<&Rows> {
        self.1.as_ref()
    }

    fn teach(&self, name: &str, graph: &Bytes, lessons: &Lessons<'_>) -> Result<Bytes, String> {
        // The 60 rows split: 16 to make candidates, 24 to judge, the rest free.
        let rows = self.1.as_ref().map_or(20, Rows::len);
        assert_eq!((name, lessons.rows.len()), ("from-quick", rows));
        assert!(lessons.together > 64, "rows of 64 pixels are small: {}", lessons.together);
        assert_eq!((lessons.said[0].shape(), lessons.meaning), (&[rows, 3][..], Meaning::Probabilities));
        if self.0 { Ok(graph.clone()) } else { Err("nobody teaches here".into()) }
    }
}

/// A classifier of the same pictures without a convolution.
fn quick() -> Model {
    let mut builder = Builder::new("quick", 5);
    let x = builder.input(Value::batch_of_f32("x", &[1, 8, 8]));
    let flat = builder.node("Flatten", "flat", &[&x]);
    let scores = builder.dense("scores", &flat, Dense { inputs: 64, outputs: 3 }).unwrap();
    builder.node("Softmax", "y", &[&scores]);
    builder.output(Value::batch_of_f32("y", &[3]));
    builder.build().unwrap()
}

/// The classes of the classifier's answers.
fn classes(count: usize) -> Vec<usize> {
    let (stage, model) = (Stage::new(), classifier(3));
    let said = stage.answers(&model, &stage.rows(&model, &[pictures(count)]));
    said.chunks(3).map(|row| (0..3).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()).collect()
}

#[test]
fn taught_candidates_are_added_and_failures_are_reported() {
    let brought = vec![("from-quick".to_owned(), quick().bytes().clone())];
    let wish = Wish { brought, ..WISH };
    let found = at_school(60, &wish, Some(&Lazy(true, None))).unwrap();
    let hows =
        found.candidates.iter().filter(|one| one.name == "taught-from-quick").map(|one| one.how.as_str());
    let refused = found.refused.iter().filter(|one| one.name == "taught-from-quick").count();
    let hows: Vec<&str> = hows.collect();
    assert!(hows == ["brought, then taught with 20 rows"] || (hows.is_empty() && refused == 1), "{found}");
    let found = at_school(60, &wish, Some(&Lazy(false, None))).unwrap();
    let refused = found.refused.iter().find(|refused| refused.name == "taught-from-quick").unwrap();
    assert_eq!(refused.reason, "nobody teaches here");
}

#[test]
fn school_teaches_with_its_own_rows() {
    let (stage, model) = (Stage::new(), classifier(3));
    let own = stage.rows(&model, &[pictures(33)]);
    let brought = vec![("from-quick".to_owned(), quick().bytes().clone())];
    let found = at_school(60, &Wish { brought, ..WISH }, Some(&Lazy(false, Some(own)))).unwrap();
    assert!(found.refused.iter().any(|one| one.reason == "nobody teaches here"), "it was asked: {found}");
}

#[test]
fn grades_cover_the_frontier_with_paired_gaps() {
    let (model, stage) = (classifier(3), Stage::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model.bytes()).unwrap();
    let rows = stage.rows(&model, &[pictures(40)]);
    let said = stage.answers(&model, &rows);
    let best = |row: &[f32]| (0..3).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
    // One row in ten has a label that neither model predicts.
    let label =
        |(at, row): (usize, &[f32])| if at.is_multiple_of(10) { (best(row) + 1) % 3 } else { best(row) };
    let labels: Vec<usize> = said.chunks(3).enumerate().map(label).collect();
    let candidate = |name: &str, cost, agreement| Candidate {
        model: stage.workshop.store(name, model.bytes()).unwrap(),
        ..candidate(name, cost, agreement)
    };
    let both = vec![candidate("dear", 0.5, 0.9), candidate("cheap", 0.2, 0.95)];
    let frontier = Frontier::new("tract", 0.25, setting(), both, Vec::new());
    let apart = Apart { rows: &rows, labels: Some(&labels) };
    let grades = grade(&stage.workshop, &path, &frontier, apart, &Alone).unwrap();
    let [cheap] = &grades.candidates[..] else { panic!("{grades}") };
    assert_eq!((cheap.name.as_str(), cheap.compared.agreement.value, grades.rows), ("cheap", 1.0, 40));
    assert_eq!(grades.deployed.map(|share| share.value), Some(0.9));
    let gap = cheap.gap.unwrap();
    assert!(gap.value == 0.0 && gap.high < 0.05, "{gap:?}");
    assert!(grades.to_string().contains("right on 90.00 %"), "{grades}");
    let unlabelled = grade(&stage.workshop, &path, &frontier, Apart { labels: None, ..apart }, &Alone);
    assert_eq!(unlabelled.unwrap().candidates[0].gap, None);
}

#[test]
fn confidence_from_labels_is_not_graded_without_labels() {
    let (model, stage) = (classifier(3), Stage::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model.bytes()).unwrap();
    let rows = stage.rows(&model, &[pictures(40)]);
    let sureness = Some(Sureness { calibration: Calibration::default(), expected_error: 0.1 });
    let one = Candidate {
        sureness,
        model: stage.workshop.store("one", model.bytes()).unwrap(),
        ..candidate("one", 0.2, 0.9)
    };
    let share = Share { value: 0.9, low: 0.8, high: 1.0 };
    for accuracy in [None, Some(share)] {
        let setting = Setting { accuracy, ..setting() };
        let frontier = Frontier::new("tract", 0.25, setting, vec![one.clone()], Vec::new());
        let apart = Apart { rows: &rows, labels: None };
        let grades = grade(&stage.workshop, &path, &frontier, apart, &Alone).unwrap();
        assert_eq!(grades.candidates[0].calibration_error.is_some(), accuracy.is_none());
    }
}

#[test]
fn make_rejects_too_few_rows() {
    assert_eq!(found(20, &WISH).unwrap_err(), Error::TooFewRows { given: 20, wanted: FEWEST_ROWS });
}

#[test]
fn make_rejects_too_many_nodes_before_any_run() {
    let mut builder = Builder::new("endless", 1);
    let mut last = builder.input(Value::batch_of_f32("x", &[1]));
    for at in 0..=MOST_NODES {
        last = builder.node("Relu", &format!("n{at}"), &[&last]);
    }
    builder.output(Value::batch_of_f32(&last, &[1]));
    let (model, stage) = (builder.build().unwrap(), Stage::new());
    let signature = parm_backend::engine::Signature::default();
    let rows = Rows::new(&signature, &[]).unwrap();
    let refused = make(&stage.workshop, (Path::new("none"), &model), &rows, &WISH, &Alone, None).unwrap_err();
    assert_eq!(refused, Error::TooManyNodes { nodes: MOST_NODES + 1, limit: MOST_NODES });
}

#[test]
fn search_ends_early_when_a_constant_answer_always_agrees() {
    // A decision about probabilities of three classes, none of which is negative.
    let decision = Given { output: None, meaning: Meaning::Decision(0.0), source: Source::Flag };
    let stopped = found(60, &Wish { meanings: vec![decision], ..WISH }).unwrap_err();
    let Error::Constant { rows: 24, .. } = &stopped else { panic!("{stopped:?}") };
    assert!(stopped.to_string().contains("a constant answer agrees"), "{stopped}");
}
