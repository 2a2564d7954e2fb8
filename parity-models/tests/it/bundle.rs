//! Verification of bundles against their files.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use parm_encoder::{CodeSpec, Kind};
use parm_parity_models::Error;
use parm_parity_models::bundle::{
    Accuracy, Calibration, Deployed, Input, Manifest, Meaning, MeasuredCost, ModelFile, Output, Parity,
    Problem, Range, Report, Scores, StandIn, StandInAccuracy, Training, verify,
};
use parm_parity_models::onnx::Model;
use parm_parity_models::onnx::rewrite::{self, End, Weights, derive};
use parm_parity_models::repository::Repository;
use parm_protocol::DataType;

use crate::sample;

fn put(root: &Path, name: &str, model: &Model) -> ModelFile {
    let folder = root.join(name).join("1");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("model.onnx"), model.bytes()).unwrap();
    let sha256 = Repository::open(root).unwrap().model(name).unwrap().versions[&1].digest().unwrap();
    ModelFile { name: name.into(), version: 1, sha256 }
}

/// The deployed graph with k stems and heads; one stem and head without its softmax for codes that subtract.
fn parity_graph(stem: usize, head: usize) -> Model {
    let count = |slots| NonZeroUsize::new(slots).unwrap();
    let end = if head == 1 { End::Raw } else { End::AsDeployed };
    let parity = rewrite::Design { stem: count(stem), head: count(head), end, start: Weights::Deployed };
    derive(&sample::lenet(), &parity).unwrap()
}

fn parity(code: CodeSpec, models: Vec<ModelFile>) -> Parity {
    Parity { code, models, learned: None, training: None, accuracy: None, calibration: None }
}

/// A repository with a deployed model and parities of three kinds.
fn whole(root: &Path) -> Manifest {
    let deployed = put(root, "lenet", &sample::lenet());
    let shape = |row: &[i64]| [&[-1], row].concat();
    let input = Input {
        name: "input".into(),
        datatype: DataType::Fp32,
        shape: shape(&[1, 12, 12]),
        range: Some(Range { low: -1.0, high: 3.0 }),
    };
    let output = Output {
        name: "probabilities".into(),
        datatype: DataType::Fp32,
        shape: shape(&[5]),
        meaning: Meaning::Probabilities,
        default_answer: Some(vec![0.2; 5]),
    };
    let mut manifest = Manifest::new(Deployed {
        version: deployed.version,
        sha256: deployed.sha256,
        inputs: vec![input],
        outputs: vec![output],
        preprocessing: Some(Default::default()),
    });
    let slots = put(root, "lenet.slots-k2", &parity_graph(2, 2));
    let sum = put(root, "lenet.sum-k2", &parity_graph(1, 1));
    let mut measured = parity(CodeSpec::new(Kind::Slots, 2, 1), vec![slots]);
    measured.training = Some(Training { epochs: 20, dataset: "fashion-mnist".into(), ..Default::default() });
    measured.calibration = Some(Calibration { temperature: 1.5, threshold: 0.6, curve: None });
    measured.accuracy = Some(Accuracy {
        metric: "top-1".into(),
        available: 0.91,
        degraded: 0.89,
        overall: vec![Scores { unavailable: 0.1, overall: 0.908 }],
        constant_answer: Some(0.1),
        backup: None,
        reconstructions: 10_000,
    });
    let models = vec![parity(CodeSpec::new(Kind::Sum, 2, 1), vec![sum]), measured];
    manifest.parities = models;
    manifest.parities.push(parity(CodeSpec::new(Kind::Mds, 1, 1), vec![]));
    manifest
}

/// Changes a valid bundle and returns the report of its verification.
pub(crate) fn check(spoil: impl FnOnce(&Path, &mut Manifest)) -> Report {
    let root = tempfile::tempdir().unwrap();
    let mut manifest = whole(root.path());
    spoil(root.path(), &mut manifest);
    manifest.write(&root.path().join("lenet/parm.toml")).unwrap();
    verify(&Repository::open(root.path()).unwrap(), "lenet").unwrap()
}

#[test]
fn valid_bundle_has_no_problems() {
    let report = check(|_, _| {});
    assert!(report.is_sound(), "{report}");
    let text = "lenet: ok\n  sum k=2 r=1 [lenet.sum-k2]: ok\n  slots k=2 r=1 [lenet.slots-k2]: ok\n  \
                mds k=1 r=1 []: ok\n";
    assert_eq!(report.to_string(), text);
}

#[test]
fn manifest_is_equal_after_a_round_trip() {
    let root = tempfile::tempdir().unwrap();
    let manifest = whole(root.path());
    let path = root.path().join("lenet/parm.toml");
    manifest.write(&path).unwrap();
    let read = Manifest::read(&path).unwrap();
    assert_eq!(read, manifest);
    assert_eq!(read.best(2).unwrap().code.kind, Kind::Slots);
    assert_eq!(read.best(3), None);
    let files: Vec<_> =
        fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
}

fn stand_in(model: ModelFile) -> StandIn {
    StandIn {
        model,
        provenance: "int8, static".into(),
        agreement: Some(0.985),
        accuracy: Some(StandInAccuracy { metric: "top-1".into(), deployed: 0.91, stand_in: 0.9 }),
        calibration: Some(Calibration { temperature: 1.2, threshold: 0.5, curve: None }),
        costs: vec![MeasuredCost { engine: "tract".into(), processor: None, rows: [0.25, 0.4, 0.7, 1.3] }],
    }
}

#[test]
fn stand_ins_are_verified_and_ranked_by_cost() {
    let report = check(|root, manifest| {
        let dear = put(root, "lenet-small", &sample::lenet());
        let cheap = put(root, "lenet-int8", &sample::lenet());
        manifest.stand_ins = vec![StandIn { costs: Vec::new(), ..stand_in(dear) }, stand_in(cheap)];
        assert_eq!(manifest.cheapest().unwrap().model.name, "lenet-int8");
        let path = root.join("lenet/parm.toml");
        manifest.write(&path).unwrap();
        assert_eq!(&Manifest::read(&path).unwrap(), manifest);
    });
    assert!(report.is_sound(), "{report}");
    let text = report.to_string();
    assert!(text.contains("stand-in [lenet-int8], cost 0.250, agreement 0.985: ok"), "{text}");
    assert!(text.contains("stand-in [lenet-small], cost unknown, agreement 0.985: ok"), "{text}");
}

#[test]
fn stand_in_with_wrong_tensors_or_numbers_is_a_problem() {
    let odd = check(|root, manifest| {
        manifest.stand_ins = vec![stand_in(put(root, "lenet-odd", &parity_graph(2, 2)))];
    });
    assert!(matches!(odd.stand_ins[0].problems[..], [Problem::Tensor { .. }]), "{odd}");
    let spoiled = check(|root, manifest| {
        let mut spoiled = stand_in(put(root, "lenet-small", &sample::lenet()));
        (spoiled.agreement, spoiled.costs[0].rows[2]) = (Some(1.5), f64::NAN);
        manifest.stand_ins = vec![spoiled];
    });
    let found = &spoiled.stand_ins[0].problems[..];
    assert!(matches!(found, [Problem::Fraction { .. }, Problem::Cost { .. }]), "{spoiled}");
    let changed = check(|root, manifest| {
        let file = put(root, "lenet-small", &sample::lenet());
        manifest.stand_ins = vec![stand_in(ModelFile { sha256: "0".repeat(64), ..file })];
    });
    assert!(matches!(changed.stand_ins[0].problems[..], [Problem::Digest { .. }]), "{changed}");
    assert!(!changed.is_sound());
}

#[test]
fn changed_model_file_is_found_by_its_digest() {
    let other = |root: &Path, _: &mut Manifest| _ = put(root, "lenet.slots-k2", &parity_graph(3, 2));
    let report = check(other);
    assert_eq!(report.problems, []);
    assert!(matches!(report.parities[1].problems[..], [Problem::Digest { version: 1, .. }]), "{report}");
    assert!(report.parities[0].problems.is_empty() && !report.is_sound());
    let retrained = check(|root, _| _ = put(root, "lenet", &parity_graph(1, 1)));
    assert!(matches!(retrained.problems[..], [Problem::Digest { .. }]), "{retrained}");
}

#[test]
fn missing_models_and_versions_are_named() {
    let report = check(|_, manifest| manifest.parities[1].models[0].version = 7);
    let missing = Problem::MissingVersion { model: "lenet.slots-k2".into(), version: 7, available: vec![1] };
    assert_eq!(report.parities[1].problems, [missing]);
    let report = check(|root, _| fs::remove_dir_all(root.join("lenet.sum-k2")).unwrap());
    assert!(matches!(report.parities[0].problems[..], [Problem::Missing { .. }]), "{report}");
}

#[test]
fn tensors_that_do_not_match_the_code_are_problems() {
    let wrong = |model: &str, side, tensor: &str, wanted: &str, actual: &str| Problem::Tensor {
        model: model.into(),
        side,
        tensor: tensor.into(),
        wanted: wanted.into(),
        actual: actual.into(),
    };
    let report = check(|_, manifest| manifest.parities[1].code.k = 3);
    let expect = [
        wrong("lenet.slots-k2", "input", "input", "FP32[-1, 3, 12, 12]", "FP32[-1, 2, 12, 12]"),
        wrong("lenet.slots-k2", "output", "probabilities", "FP32[-1, 3, 5]", "FP32[-1, 2, 5]"),
    ];
    assert_eq!(report.parities[1].problems, expect);
    let report = check(|_, manifest| manifest.deployed.outputs[0].name = "logits".into());
    assert!(matches!(report.problems[..], [Problem::NoTensor { side: "output", .. }]), "{report}");
}

#[test]
fn wrong_number_of_models_is_a_problem() {
    let report = check(|_, manifest| manifest.parities[0].models.clear());
    let expect = [Problem::Models { code: "sum".into(), wanted: 1, named: 0 }];
    assert_eq!(report.parities[0].problems, expect);
    let report = check(|_, manifest| manifest.parities[2].code = CodeSpec::new(Kind::Learned, 2, 1));
    assert_eq!(report.parities[2].problems, [Problem::Learned]);
    let report = check(|_, manifest| manifest.parities[0].code.k = 1000);
    assert!(matches!(report.parities[0].problems[..], [Problem::Code { .. }]), "{report}");
}

#[test]
fn invalid_numbers_are_problems() {
    let report = check(|_, manifest| {
        manifest.deployed.inputs[0].range = Some(Range { low: 1.0, high: f32::NAN });
        manifest.deployed.outputs[0].default_answer = Some(vec![1.0]);
        manifest.parities[1].calibration =
            Some(Calibration { temperature: 0.0, threshold: 0.5, curve: None });
        manifest.parities[1].accuracy.as_mut().unwrap().degraded = 89.0;
    });
    let [Problem::Range { .. }, answer] = &report.problems[..] else { panic!("{report}") };
    assert_eq!(*answer, Problem::DefaultAnswer { output: "probabilities".into(), wanted: 5, actual: 1 });
    let expect = [
        Problem::Calibration { temperature: 0.0, threshold: 0.5 },
        Problem::Fraction { what: "degraded".into(), value: 89.0 },
    ];
    assert_eq!(report.parities[1].problems, expect);
}

#[test]
fn unreadable_manifest_error_has_path_and_reason() {
    let path = Path::new("parm.toml");
    let newer = Manifest::parse("format = 2\nnovelty = true\n", path).unwrap_err();
    assert_eq!(newer, Error::ManifestFormat { path: path.into(), format: 2, known: 1 });
    let root = tempfile::tempdir().unwrap();
    let text = whole(root.path()).to_toml().replace("threshold", "treshold");
    let error = Manifest::parse(&text, path).unwrap_err().to_string();
    assert!(error.contains("treshold") && error.contains("line"), "{error}");
    let text = whole(root.path()).to_toml().replace("FP32", "FLOAT");
    let error = Manifest::parse(&text, path).unwrap_err().to_string();
    assert!(error.contains("FLOAT"), "{error}");
}

#[test]
fn model_without_a_bundle_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "lenet", &sample::lenet());
    let repository = Repository::open(root.path()).unwrap();
    let expect = Error::NoBundle { name: "lenet".into(), root: root.path().into() };
    assert_eq!(verify(&repository, "lenet"), Err(expect));
}

#[test]
fn failed_write_of_a_manifest_leaves_no_file() {
    let root = tempfile::tempdir().unwrap();
    let manifest = whole(root.path());
    let path = root.path().join("nowhere/parm.toml");
    assert!(matches!(manifest.write(&path), Err(Error::Write { .. })));
    fs::create_dir_all(root.path().join("taken/parm.toml")).unwrap();
    assert!(manifest.write(&root.path().join("taken/parm.toml")).is_err());
    assert_eq!(fs::read_dir(root.path().join("taken")).unwrap().count(), 1);
}
