//! Verification of bundles against their files.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use parm_encoder::{CodeSpec, Kind};
use parm_parity_models::Error;
use parm_parity_models::bundle::{
    Accuracy, Calibration, Deployed, Input, Manifest, Meaning, MeasuredCost, ModelFile, Output, Parity,
    Range, Report, Scores, StandIn, StandInAccuracy, Training, verify,
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
fn check(spoil: impl FnOnce(&Path, &mut Manifest)) -> Report {
    let root = tempfile::tempdir().unwrap();
    let mut manifest = whole(root.path());
    spoil(root.path(), &mut manifest);
    manifest.write(&root.path().join("lenet/parm.toml")).unwrap();
    verify(&Repository::open(root.path()).unwrap(), "lenet").unwrap()
}

#[test]
fn valid_bundle_has_no_problems() {
    let report = check(|_, _| {});
    assert!(report.is_sound(), "{report:?}");
    let parities: Vec<(&str, &[String])> =
        report.parities.iter().map(|parity| (parity.code.as_str(), &parity.models[..])).collect();
    let (sum, slots) = (["lenet.sum-k2".to_owned()], ["lenet.slots-k2".to_owned()]);
    assert_eq!(parities, [("sum k=2 r=1", &sum[..]), ("slots k=2 r=1", &slots), ("mds k=1 r=1", &[])]);
}

#[test]
fn manifest_is_equal_after_a_round_trip() {
    let root = tempfile::tempdir().unwrap();
    let manifest = whole(root.path());
    let path = root.path().join("lenet/parm.toml");
    manifest.write(&path).unwrap();
    let read = Manifest::read(&path).unwrap();
    assert_eq!(read, manifest);
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
    assert!(report.is_sound(), "{report:?}");
    let costs: Vec<(&str, Option<f64>)> =
        report.stand_ins.iter().map(|one| (one.model.as_str(), one.cost)).collect();
    assert_eq!(costs, [("lenet-small", None), ("lenet-int8", Some(0.25))]);
}

/// Cuts a file in half.
fn tear(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

#[test]
fn spoiled_bundle_is_refused_with_the_reason() {
    type Spoil = fn(&Path, &mut Manifest);
    let cases: [(Spoil, &[&str]); 23] = [
        (
            |root, _| _ = put(root, "lenet.slots-k2", &parity_graph(3, 2)),
            &["'lenet.slots-k2' version 1 is not"],
        ),
        (
            |root, _| _ = put(root, "lenet", &parity_graph(1, 1)),
            &["'lenet' version 1 is not the bundled file"],
        ),
        (|root, _| tear(&root.join("lenet.sum-k2/1/model.onnx")), &["sha256"]),
        (
            |root, _| fs::remove_dir_all(root.join("lenet.sum-k2")).unwrap(),
            &["put the model into the repository"],
        ),
        (|_, m| m.parities[1].models[0].version = 7, &["no version 7: available are [1]"]),
        (|_, m| m.deployed.version = u64::MAX >> 1, &["has no version"]),
        (|_, m| m.deployed.sha256 = "0".repeat(64), &["sha256"]),
        (|_, m| m.deployed.sha256 = String::new(), &["sha256"]),
        (|_, m| m.parities[0].models[0].name = "../lenet".into(), &["invalid model name '../lenet'"]),
        (|_, m| m.parities[0].models[0].name = "/etc".into(), &["invalid model name '/etc'"]),
        (|_, m| m.parities[0].models[0].name = "..".into(), &["invalid model name '..'"]),
        (
            |_, m| m.parities[1].code.k = 3,
            &[
                "input 'input' of model 'lenet.slots-k2' is FP32[-1, 2, 12, 12], expected FP32[-1, 3, 12, 12]",
                "output 'probabilities' of model 'lenet.slots-k2' is FP32[-1, 2, 5], expected FP32[-1, 3, 5]",
            ],
        ),
        (|_, m| m.deployed.outputs[0].name = "logits".into(), &["model 'lenet' has no output 'logits'"]),
        (|_, m| m.parities[0].models.clear(), &["code sum needs 1 parity models, the manifest names 0"]),
        (|_, m| m.parities[2].code = CodeSpec::new(Kind::Learned, 2, 1), &["needs an encoder and a decoder"]),
        (|_, m| m.parities[0].code.k = 1000, &["unusable code"]),
        (|_, m| m.parities[1].code = CodeSpec::new(Kind::Slots, usize::MAX >> 1, 1), &["k"]),
        (|_, m| m.parities[0].code = CodeSpec::new(Kind::Sum, 2, usize::MAX >> 1), &["r"]),
        (|_, m| m.deployed.inputs[0].shape = vec![-1, i64::MAX, i64::MAX, 2], &["input"]),
        (|_, m| m.deployed.inputs[0].shape = Vec::new(), &["batch dimension"]),
        (|_, m| m.deployed.outputs[0].shape = vec![-1, i64::MIN], &["none below"]),
        (
            |_, m| {
                m.deployed.inputs[0].range = Some(Range { low: 1.0, high: f32::NAN });
                m.deployed.outputs[0].default_answer = Some(vec![1.0]);
                let wrong = Calibration { temperature: 0.0, threshold: 0.5, curve: None };
                m.parities[1].calibration = Some(wrong);
                m.parities[1].accuracy.as_mut().unwrap().degraded = 89.0;
            },
            &[
                "invalid range",
                "has 1 values, expected 5",
                "temperature 0 and threshold 0.5",
                "degraded is 89",
            ],
        ),
        (
            |root, m| {
                let file = put(root, "lenet-small", &sample::lenet());
                let odd = stand_in(put(root, "lenet-odd", &parity_graph(2, 2)));
                let changed = stand_in(ModelFile { sha256: "0".repeat(64), ..file.clone() });
                let mut spoiled = stand_in(file);
                (spoiled.agreement, spoiled.costs[0].rows[2]) = (Some(1.5), f64::NAN);
                m.stand_ins = vec![odd, changed, spoiled];
            },
            &[
                "model 'lenet-odd' is",
                "'lenet-small' version 1 is not",
                "the agreement of",
                "invalid cost of",
            ],
        ),
    ];
    for (at, (spoil, reasons)) in cases.into_iter().enumerate() {
        let report = check(spoil);
        let said = format!("{report:?}");
        assert!(!report.is_sound() && reasons.iter().all(|reason| said.contains(reason)), "{at}: {said}");
        // A spoiled parity spoils no other.
        assert!(at > 0 || (report.problems.is_empty() && report.parities[0].problems.is_empty()), "{said}");
    }
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
    let none = verify(&Repository::open(root.path()).unwrap(), "lenet.sum-k2");
    let root = root.path().into();
    assert_eq!(none, Err(Error::NoBundle { name: "lenet.sum-k2".into(), root }));
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

#[test]
fn manifest_is_rejected_when_its_text_is_hostile() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("parm.toml");
    let deep = "a = ".to_owned() + &"[".repeat(100_000);
    for (text, words) in [
        (deep.as_str(), "recursion"),
        ("format = 18446744073709551616", "format"),
        ("format = 1\n[deployed]\nversion = -1", "version"),
        ("format = nan", "format"),
        ("\0", "TOML"),
        ("", "format"),
    ] {
        fs::write(&path, text).unwrap();
        let error = Manifest::read(&path).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {:.300}", error);
    }
    fs::write(&path, [0xff; 100]).unwrap();
    assert!(Manifest::read(&path).unwrap_err().to_string().contains("UTF-8"));
    fs::write(&path, "#".repeat(17 << 20)).unwrap();
    assert!(Manifest::read(&path).unwrap_err().to_string().contains("which no manifest has"));
}
