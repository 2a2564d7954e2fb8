//! The included bundle: verifies it, and checks its stated accuracy on Fashion-MNIST's test images.

use std::path::{Path, PathBuf};

use parm_encoder::Kind;
use parm_parity_models::bundle::{Calibration, Manifest, Meaning, verify};
use parm_parity_models::onnx::{Limits, Model};
use parm_parity_models::repository::Repository;
use parm_training::data::{Limit, Samples, Source};
use parm_training::evaluate::{self, Bench, Contender, Metric, Order, Rules};
use parm_training::{Array, Device, Network, Teacher};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn manifest() -> Manifest {
    Manifest::read(&project().join("models/fashion-lenet/parm.toml")).expect("a manifest")
}

fn network(name: &str) -> Network {
    let path = project().join("models").join(name).join("1/model.onnx");
    Network::new(Model::open(&path, &Limits::default()).expect("a model"), Device::Cpu).expect("a network")
}

/// The images of the demonstration.
fn images() -> Samples {
    let folder = project().join("examples/fashion-mnist");
    let source = format!("idx:{0}/images-idx3-ubyte.gz,{0}/labels-idx1-ubyte.gz", folder.display());
    source.parse::<Source>().expect("a source").read(Limit::default()).expect("images")
}

#[test]
fn included_bundle_verifies_and_is_small() {
    let repository = Repository::open(project().join("models")).expect("a repository");
    assert!(verify(&repository, "fashion-lenet").expect("a report").is_sound());
    let manifest = manifest();
    let files: Vec<&str> =
        manifest.parities.iter().flat_map(|p| p.files()).map(|f| f.name.as_str()).collect();
    let bytes = |name: &&str| {
        let path = project().join("models").join(name).join("1/model.onnx");
        std::fs::metadata(path).expect("a file").len()
    };
    let total: u64 = files.iter().chain(&["fashion-lenet"]).map(bytes).sum();
    assert!(total <= 5_000_000, "{total} bytes");
    let known = manifest.parities.iter().map(|parity| (parity.code.kind, parity.code.k)).collect::<Vec<_>>();
    assert_eq!(known, [(Kind::Slots, 2), (Kind::Slots, 3), (Kind::Slots, 4), (Kind::Sum, 2)]);
}

/// Within three points: with 2,000 images the standard error is almost one point.
#[test]
fn included_bundle_has_its_stated_accuracy() {
    let samples = images();
    let deployed = network("fashion-lenet");
    let deployed = |rows: &Array<f32>| Teacher::predict(&deployed, rows);
    let rules = Rules { metric: Metric::TOP_1, meaning: Meaning::Logits, seed: 1 };
    let bench = Bench::new(&deployed, &samples, rules).expect("a bench");
    for parity in &manifest().parities {
        let model = network(&parity.models[0].name);
        let model = |rows: &Array<f32>| Teacher::predict(&model, rows);
        let code = parity.code.build().expect("a code");
        let models: &[&evaluate::Model<'_>] = &[&model];
        let (calibration, order) = (Calibration::default(), Order::Drawn);
        let report = bench.judge(&Contender { code: &*code, models, calibration, order }).expect("a report");
        let said = parity.accuracy.as_ref().expect("it was measured").degraded;
        assert!(
            (report.degraded() - said).abs() < 0.03,
            "{:?}: {} for {said}",
            parity.code,
            report.degraded()
        );
    }
}
