//! Tests of searches: of small classifiers, with and without a school; on graphs as exporters write them
//! (`stand-ins/fixtures/make.py`); and with the defects that users' rows have.

use parm_parity_models::bundle::{Calibration, Meaning};
use parm_parity_models::onnx::{Builder, Conv, Dense, Limits, Value, ops};
use parm_protocol::DataType;

use super::*;
use crate::exact::rewrite;
use crate::graph::{Links, raise};
use crate::int8::{Cuts, gather, quantise};
use crate::layers::{Shortcuts, repeats};
use crate::measure::{Meant, Source, Sureness};
use crate::prune::{Depth, Pruning};
use crate::testing::{Alone, Stage, candidate, setting};

const WISH: Wish = Wish {
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
    let (mut builder, x) = Builder::reading("classifier", 7, Value::batch_of_f32("x", &[1, 8, 8]));
    let conv = builder.conv("conv", &x, Conv::same(1, 4, 3)).unwrap();
    let idle = builder.node("Identity", "idle", &[&conv]);
    let flat = builder.node("Flatten", "flat", &[&idle]);
    let scores = builder.dense("scores", &flat, Dense { inputs: 256, outputs: classes }).unwrap();
    builder.node("Softmax", "y", &[&scores]);
    builder.build_with(Value::batch_of_f32("y", &[classes])).unwrap()
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
    let path = stage.workshop.write("model", model.bytes()).unwrap();
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
        let (mut builder, x) = Builder::reading("two", 5, Value::batch_of_f32("x", &[1, 8, 8]));
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
    let (mut builder, x) = Builder::reading("masked", 5, Value::batch_of_f32("x", &[1, 8, 8]));
    let flat = builder.node("Flatten", "flat", &[&x]);
    let scores = builder.dense("scores", &flat, Dense { inputs: 64, outputs: 3 }).unwrap();
    let kept = builder.node("Relu", "kept", &[&scores]);
    builder.node("Log", "y", &[&kept]);
    builder.output(Value::batch_of_f32("y", &[3]));
    let found = found_for(&builder.build().unwrap(), 60, &WISH, None);
    assert!(found.unwrap_err().to_string().contains("NaN or infinity, which servers withhold"));
}

#[test]
fn function_that_falls_stays_before_a_maximum() {
    let (mut builder, x) = Builder::reading("falling", 5, Value::batch_of_f32("x", &[1, 8, 8]));
    let conv = builder.conv("conv", &x, Conv::same(1, 4, 3)).unwrap();
    let falling = builder.node("Neg", "falling", &[&conv]);
    let pooled = builder.node("GlobalMaxPool", "pooled", &[&falling]);
    let flat = builder.node("Flatten", "flat", &[&pooled]);
    builder.dense("y", &flat, Dense { inputs: 4, outputs: 3 }).unwrap();
    builder.output(Value::batch_of_f32("y", &[3]));
    let found = found_for(&builder.build().unwrap(), 60, &WISH, None).unwrap();
    assert!(!found.refused.iter().any(|one| one.reason.contains("outputs differ")), "{found}");
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
    let (mut builder, x) = Builder::reading("quick", 5, Value::batch_of_f32("x", &[1, 8, 8]));
    let flat = builder.node("Flatten", "flat", &[&x]);
    let scores = builder.dense("scores", &flat, Dense { inputs: 64, outputs: 3 }).unwrap();
    builder.node("Softmax", "y", &[&scores]);
    builder.build_with(Value::batch_of_f32("y", &[3])).unwrap()
}

/// The classes of the classifier's answers.
fn classes(count: usize) -> Vec<usize> {
    let (stage, model) = (Stage::new(), classifier(3));
    let said = stage.answers(&model, &stage.rows(&model, &[pictures(count)]));
    said.chunks(3).map(|row| (0..3).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()).collect()
}

#[test]
fn taught_candidates_are_added_and_failures_are_reported() {
    let wish = Wish { brought: vec![("from-quick".to_owned(), quick().bytes().clone())], ..WISH };
    let found = at_school(60, &wish, Some(&Lazy(true, None))).unwrap();
    let hows =
        found.candidates.iter().filter(|one| one.name == "taught-from-quick").map(|one| one.how.as_str());
    let refused = found.refused.iter().filter(|one| one.name == "taught-from-quick").count();
    let hows: Vec<&str> = hows.collect();
    assert!(hows == ["brought, then taught with 20 rows"] || (hows.is_empty() && refused == 1), "{found}");
    let (stage, model) = (Stage::new(), classifier(3));
    for rows in [None, Some(stage.rows(&model, &[pictures(33)]))] {
        let found = at_school(60, &wish, Some(&Lazy(false, rows))).unwrap();
        let refused = found.refused.iter().find(|refused| refused.name == "taught-from-quick").unwrap();
        assert_eq!(refused.reason, "nobody teaches here");
    }
}

#[test]
fn grades_cover_the_frontier_with_paired_gaps() {
    let (model, stage) = (classifier(3), Stage::new());
    let path = stage.workshop.write("model", model.bytes()).unwrap();
    let rows = stage.rows(&model, &[pictures(40)]);
    let said = stage.answers(&model, &rows);
    let best = |row: &[f32]| (0..3).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
    // One row in ten has a label that neither model predicts.
    let label =
        |(at, row): (usize, &[f32])| if at.is_multiple_of(10) { (best(row) + 1) % 3 } else { best(row) };
    let labels: Vec<usize> = said.chunks(3).enumerate().map(label).collect();
    let sureness = Some(Sureness { calibration: Calibration::default(), expected_error: 0.1 });
    let candidate = |name: &str, cost, agreement| Candidate {
        sureness,
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
    // A confidence that was fitted to labels is not graded without labels.
    let share = Share { value: 0.9, low: 0.8, high: 1.0 };
    for accuracy in [None, Some(share)] {
        let frontier = Frontier { setting: Setting { accuracy, ..setting() }, ..frontier.clone() };
        let unlabelled = Apart { labels: None, ..apart };
        let grades = grade(&stage.workshop, &path, &frontier, unlabelled, &Alone).unwrap();
        let Grade { gap, calibration_error, .. } = &grades.candidates[0];
        assert_eq!((*gap, calibration_error.is_some()), (None, accuracy.is_none()));
    }
}

#[test]
fn make_rejects_too_few_rows_and_copies_of_few() {
    let few = found(20, &WISH).unwrap_err().to_string();
    assert!(few.starts_with("20 rows are too few"), "{few}");
    let (stage, model) = (Stage::new(), classifier(3));
    let copies = Tensor::concat_rows(&vec![pictures(20); 3]).unwrap();
    let refused = make(
        &stage.workshop,
        (Path::new("none"), &model),
        &stage.rows(&model, &[copies]),
        &WISH,
        &Alone,
        None,
    );
    let refused = refused.unwrap_err().to_string();
    assert!(refused.starts_with("60 rows, of which only 20 are different"), "{refused}");
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
    assert!(refused.to_string().contains("nodes, more than 50000"), "{refused}");
}

#[test]
fn search_ends_early_when_a_constant_answer_always_agrees() {
    // A decision about probabilities of three classes, none of which is negative.
    let decision = Given { output: None, meaning: Meaning::Decision(0.0), source: Source::Flag };
    let stopped = found(60, &Wish { meanings: vec![decision], ..WISH }).unwrap_err();
    let said = stopped.to_string();
    assert!(said.contains("a constant answer agrees") && said.contains("24 rows that judge"), "{said}");
}

#[test]
fn rows_for_making_and_judging_are_disjoint() {
    let parts = Parts::draw(100, &WISH);
    assert_eq!((parts.calibration.len(), parts.fitted.len(), parts.judged.len()), (16, 20, 64));
    assert!(parts.free().iter().all(|row| !parts.judged.contains(row) && !parts.calibration.contains(row)));
    assert_eq!(parts.free().len(), 20);
    let mut all = [parts.calibration, parts.fitted, parts.judged].concat();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
    let in_time = Parts::draw(100, &Wish { in_time: true, ..WISH });
    assert_eq!(in_time.judged, (36..100).collect::<Vec<_>>(), "the newest");
    let few = Parts::draw(20, &WISH);
    assert_eq!((few.calibration.len(), few.fitted.len(), few.judged.len()), (10, 2, 8));
}

/// Rows for any of them: pictures, or twelve identifiers with a mask.
fn asked(stage: &Stage, model: &Model) -> Rows {
    const COUNT: usize = 8;
    let runner = stage.workshop.load("signature", model.bytes()).unwrap();
    let array = |input: &parm_backend::engine::Declared| {
        let sizes = input.shape.iter().skip(1).map(|&size| usize::try_from(size).unwrap_or(12));
        let shape: Vec<usize> = std::iter::once(COUNT).chain(sizes).collect();
        let (count, mut random) = (shape.iter().product(), Random::named(3, &input.name));
        if input.datatype == DataType::Fp32 {
            return Tensor::from_f32(shape.as_slice(), &random.normals(count)).unwrap();
        }
        let is_mask = input.name.contains("mask");
        let value = |_| if is_mask { 1 } else { random.below(100) as i64 };
        let data: Vec<u8> = (0..count).map(value).flat_map(i64::to_le_bytes).collect();
        Tensor::new(DataType::Int64, shape.as_slice(), data.into()).unwrap()
    };
    let arrays: Vec<Tensor> = runner.signature().inputs.iter().map(array).collect();
    Rows::new(runner.signature(), &arrays).unwrap()
}

fn opened(name: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{name}.onnx"));
    Model::open(&path, &Limits::default()).unwrap()
}

/// Checks that all smaller graphs give finite outputs for all rows: with half of the channels in their blocks, with
/// half of their blocks if they repeat, and in 8 bits. Returns the operators with the most work and the remaining
/// shares of the work.
fn smaller(name: &str) -> (Vec<String>, Vec<f64>) {
    let (model, stage) = (opened(name), Stage::new());
    let (rows, workshop) = (asked(&stage, &model), &stage.workshop);
    let base = settle(workshop, Draft::new(&model).unwrap(), &rows).unwrap();
    let base = rewrite(workshop, &base, &rows, true).unwrap();
    let survey = Survey::of(workshop, &base, &rows).unwrap();
    let pruning = Pruning::of(workshop, &base, &rows, &Alone).unwrap();
    let depths = [Depth::Inside, Depth::Streams].into_iter().filter(|depth| pruning.reaches(*depth));
    let mut drafts: Vec<Draft> = depths.map(|depth| pruning.cut(0.5, depth).unwrap().0).collect();
    if let Some(found) = repeats(&base, &Links::of(&base), &survey) {
        let shortcuts = Shortcuts::of(workshop, &base, &rows, (found, &survey, &Alone)).unwrap().unwrap();
        drafts.extend(shortcuts.cut(&base).unwrap().into_iter().map(|(_, _, draft)| draft));
    }
    let mut raised = base.clone();
    raise(&mut raised).unwrap();
    let ranges = gather(workshop, &raised, &rows, &Alone).unwrap();
    drafts.push(quantise(&raised, &ranges, &Cuts::of(1e-4)).unwrap().unwrap());
    let total = |draft: &Draft, survey: &Survey| -> f64 {
        let sizes = |name: &str| survey.looks()[0].get(name).map(Vec::as_slice);
        draft.nodes.iter().filter_map(|node| ops::multiplications(node, sizes)).sum()
    };
    let whole = total(&base, &survey);
    let mut left = Vec::new();
    for draft in drafts {
        let mut runner = workshop.load("smaller", draft.clone().finish().unwrap().bytes()).unwrap();
        let said = answers(&mut runner, &rows, &Alone).unwrap();
        let is_finite = said[0].as_f32().unwrap().iter().all(|value| value.is_finite());
        assert!(is_finite && said[0].rows() == rows.len(), "{name}");
        // 8-bit copies have as many multiplications.
        if !draft.nodes.iter().any(|node| node.op_type == "QuantizeLinear") {
            let survey = Survey::of(workshop, &draft, &rows).unwrap();
            left.push(total(&draft, &survey) / whole);
        }
    }
    (work(&base, &survey).into_iter().map(|work| work.operator).collect(), left)
}

#[test]
fn networks_as_exporters_write_them_lose_channels_and_layers() {
    // Inverted residuals with gates, separable convolutions, a recogniser, and an encoder of any length; attention stays
    // whole.
    for (name, wanted, most) in [
        ("mobilenet", "Conv", &[0.6][..]),
        ("lcnet", "Conv", &[0.4]),
        ("svtr", "MatMul of two values", &[0.9, 0.65]),
        ("encoder", "MatMul of two values", &[0.8, 0.6]),
    ] {
        let (operators, left) = smaller(name);
        assert!(operators.iter().any(|operator| operator == wanted), "{name}: {operators:?}");
        assert!(left.iter().zip(most).all(|(left, most)| left < most), "{name}: {left:?}");
        assert!(left.len() >= most.len(), "{name}: {left:?}");
    }
}

const WIDE: usize = 24;
/// Wide enough for smaller candidates to be faster on most machines.
const INNER: usize = 192;

/// The last operator of a model, and what its outputs mean.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Probabilities of this many classes.
    Classes(usize),
    /// Scores that are not declared as classes.
    Scores(usize),
    /// One probability.
    Decision,
}

fn ending_in(end: End, seed: u64) -> Model {
    let (mut builder, x) = Builder::reading("model", seed, Value::batch_of_f32("x", &[WIDE]));
    let inner = builder.dense("inner", &x, Dense { inputs: WIDE, outputs: INNER }).unwrap();
    let inner = builder.node("Relu", "relu", &[&inner]);
    let middle = builder.dense("middle", &inner, Dense { inputs: INNER, outputs: INNER }).unwrap();
    let middle = builder.node("Relu", "relu2", &[&middle]);
    let (last, outputs) = match end {
        End::Classes(count) => (Some("Softmax"), count),
        End::Scores(count) => (None, count),
        End::Decision => (Some("Sigmoid"), 1),
    };
    let name = if last.is_some() { "scores" } else { "y" };
    builder.dense(name, &middle, Dense { inputs: INNER, outputs }).unwrap();
    if let Some(last) = last {
        builder.node(last, "y", &["scores"]);
    }
    builder.build_with(Value::batch_of_f32("y", &[outputs])).unwrap()
}

fn values(count: usize, seed: u64) -> Vec<f32> {
    Random::new(seed).normals(count * WIDE)
}

#[test]
fn told_figures_hold_on_unseen_rows() {
    let (mut told, mut untrue) = (0, Vec::new());
    let ends = [End::Classes(2), End::Classes(5), End::Scores(3), End::Decision];
    let stage = Stage::new();
    // Rows that are given several times must not count as more.
    for (seed, (end, copies)) in ends.iter().flat_map(|end| [(*end, 1), (*end, 3)]).enumerate() {
        // A random network may answer nearly always the same; these do not.
        let seed = seed as u64 / 2 * 4 + seed as u64 % 2;
        let (model, seed) = (ending_in(end, seed), 100 + seed);
        let path = stage.workshop.write("model", model.bytes()).unwrap();
        let given = values(180 / copies, seed).repeat(copies);
        let array = Tensor::from_f32([180, WIDE].as_slice(), &given).unwrap();
        let mut deployed = stage.workshop.load("deployed", model.bytes()).unwrap();
        let rows = Rows::new(deployed.signature(), &[array]).unwrap();
        let (expected, meanings) = match end {
            End::Classes(_) => (Meaning::Probabilities, Vec::new()),
            End::Scores(_) => (Meaning::Values, Vec::new()),
            End::Decision => {
                let meaning = Meaning::Decision(0.5);
                (meaning, vec![Given { output: None, meaning, source: Source::Flag }])
            }
        };
        let wish = Wish { meanings, cost: 1.0, measure: Duration::from_millis(20), ..WISH };
        let found = make(&stage.workshop, (&path, &model), &rows, &wish, &Alone, None).unwrap();
        assert_eq!((found.setting.rows, found.setting.distinct_rows), (180, 180 / copies));
        assert!(
            matches!(&found.setting.meanings.outputs[..], [Meant { meaning, .. }] if *meaning == expected)
        );
        let unseen = Tensor::from_f32([1_000, WIDE].as_slice(), &values(1_000, 7 * seed)).unwrap();
        let unseen = Rows::new(deployed.signature(), &[unseen]).unwrap();
        let said = answers(&mut deployed, &unseen, &Alone).unwrap();
        for one in &found.candidates {
            let mut runner = stage.workshop.load_stored(&one.model).unwrap();
            let own = answers(&mut runner, &unseen, &Alone).unwrap();
            let truth = Share::of(&judge(&said, &own, &[expected]));
            told += 1;
            if truth.high < one.compared.agreement.low || truth.low > one.compared.agreement.high {
                untrue.push(format!("{end:?}, {}: {:?}, not {truth:?}", one.name, one.compared.agreement));
            }
        }
        if let Some(chosen) = found.chosen() {
            assert!(chosen.compared.agreement.value >= 0.8 && !chosen.is_no_better, "{found}");
        }
    }
    // Two intervals of 95 % seldom miss each other by chance. Few candidates may be faster on this machine.
    assert!(untrue.len() <= 1 + told / 20, "{} of {told}: {untrue:#?}", untrue.len());
}

#[test]
fn time_limit_keeps_the_candidates_that_are_made() {
    let limited = Limited { progress: &Alone, until: Some(Instant::now()), is_final: false };
    assert!(limited.is_stopped());
    assert_eq!(limited.ended(Err(Error::Stopped), 3), Ok(Some(Interruption::TimeLimit)));
    assert_eq!(limited.ended(Ok(()), 3), Ok(None));
    let nothing = limited.ended(Err(Error::Stopped), 0).unwrap_err();
    assert!(nothing.to_string().contains("nothing was measured"), "{nothing}");
}
