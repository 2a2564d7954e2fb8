//! Tests of bundles: the codes in use, their parity models, and the confidence of reconstructions.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parm_encoder::{CodeSpec, Kind, Nets};
use parm_frontend::{Config, Frontend, LoadNets, Timers};
use parm_parity_models::bundle::{
    Calibration, Deployed, Input, Learned, Manifest, Meaning, MeasuredCost, ModelFile, Output, Parity, Range,
    StandIn,
};
use parm_protocol::{DataType, InferRequest, InferResponse, InferenceService, ModelMetadata, Parameter};
use parm_settings::{Fraction, PolicyKind};
use tempfile::TempDir;

use crate::rig::{
    MS, Network, coding, column, config, infer, metric, outcome, over, ready, request, start, until, warm,
    with, workers_with,
};
use crate::scripted::{Act, Scripted, doubler};

/// An entry whose model is named after the code, such as `sum2`.
fn parity(kind: Kind, k: usize) -> Parity {
    let model = ModelFile { name: format!("{kind}{k}"), version: 1, sha256: "0".repeat(64) };
    let calibration = Some(Calibration::default());
    let code = CodeSpec::new(kind, k, 1);
    Parity { code, models: vec![model], learned: None, training: None, accuracy: None, calibration }
}

fn manifest(parities: Vec<Parity>) -> Manifest {
    let (datatype, shape) = (DataType::Fp32, vec![-1, 2]);
    let output = |name: &str| Output {
        name: name.into(),
        datatype,
        shape: shape.clone(),
        meaning: Meaning::Logits,
        default_answer: Some(vec![0.5, -0.5]),
    };
    let range = Some(Range { low: -100.0, high: 100.0 });
    let mut manifest = Manifest::new(Deployed {
        version: 1,
        sha256: "0".repeat(64),
        inputs: vec![Input { name: "x".into(), datatype, shape: shape.clone(), range }],
        outputs: vec![output("y"), output("z")],
        preprocessing: None,
    });
    manifest.parities = parities;
    manifest
}

fn write(folder: &Path, manifest: &Manifest) {
    fs::create_dir_all(folder.join("double")).unwrap();
    manifest.write(&folder.join("double/parm.toml")).unwrap();
}

/// A scripted parity model; those of the code `slots` take the concatenated queries.
fn model(name: &str, width: i64) -> ModelMetadata {
    let mut model = doubler(name);
    model.inputs.iter_mut().chain(&mut model.outputs).for_each(|tensor| tensor.shape[1] = width);
    model
}

fn bundled(folder: &Path, k: u8) -> Config {
    Config { bundles: Some(folder.to_owned()), ..coding(PolicyKind::ParmPlus, k) }
}

/// Lets one of two queries hang; returns the outcomes after checking the answers.
async fn one_of_two_hangs(frontend: &Frontend, hanging: &Scripted) -> Vec<String> {
    hanging.then(Act::Hang);
    let asked =
        [3.0, 8.0].map(|value| (value, start(frontend, with(request(&[value]), "timeout", 500_000u64))));
    let mut outcomes = Vec::new();
    for (value, asked) in asked {
        match asked.await.unwrap() {
            Ok(response) => {
                let is_of_group = response.parameters.contains_key("parm_group");
                assert_eq!(is_of_group, outcome(&response) == "reconstructed", "{response:?}");
                if outcome(&response) != "default" {
                    assert!((column(&response)[0] - 2.0 * value).abs() < 1e-4, "{response:?}");
                }
                outcomes.push(outcome(&response).to_owned());
            }
            Err(error) => outcomes.push(format!("{:?}", error.code())),
        }
    }
    outcomes.sort();
    outcomes
}

/// A folder with the bundle of a code that sums two queries.
fn bundle_of_sums(change: impl FnOnce(&mut Manifest)) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut manifest = manifest(vec![parity(Kind::Sum, 2)]);
    change(&mut manifest);
    write(folder.path(), &manifest);
    folder
}

/// Parities of one file do not fit predictions of another, and a retrained parity model does not fit its code.
#[tokio::test(start_paused = true)]
async fn parities_are_used_if_the_files_are_those_of_the_bundle() {
    const UNUSED: [&str; 2] = ["DeadlineExceeded", "exact"];
    for (what, made_for, said, width, expected) in [
        ("no digest is known", "0", None, 2, ["exact", "reconstructed"]),
        ("the same files", "0", Some("0"), 2, ["exact", "reconstructed"]),
        ("another file of the model", "1", Some("0"), 2, ["exact", "hedged"]),
        ("another file of the parity model", "1", Some("1"), 2, UNUSED),
        ("a parity model of another shape", "0", None, 3, UNUSED),
    ] {
        let folder = bundle_of_sums(|manifest| manifest.deployed.sha256 = made_for.repeat(64));
        let instances = workers_with(3, &[doubler("double"), model("sum2", width)]);
        let digest = said.map(|said: &str| said.repeat(64));
        instances.iter().for_each(|own| digest.iter().for_each(|digest| own.says_digest(digest)));
        let frontend = over(bundled(folder.path(), 2), &instances).await;
        assert_eq!(one_of_two_hangs(&frontend, &instances[0]).await, expected, "{what}");
        let is_used = f64::from(u8::from(expected[1] == "reconstructed"));
        assert_eq!(metric(&frontend, "parm_parities_total", &["event=\"sent\""]), is_used, "{what}");
        assert_eq!(metric(&frontend, "parm_reconstruction_confidence_count", &[]), is_used, "{what}");
    }
}

/// A stand-in in a bundle.
fn stand_in(name: &str, cost: f64, threshold: f32) -> StandIn {
    StandIn {
        model: ModelFile { name: name.into(), version: 1, sha256: "0".repeat(64) },
        provenance: String::new(),
        agreement: None,
        accuracy: None,
        calibration: Some(Calibration { temperature: 1.0, threshold, curve: None }),
        costs: vec![MeasuredCost {
            engine: "tract".into(),
            processor: None,
            rows: [1., 2., 4., 8.].map(|rows| rows * cost),
        }],
    }
}

/// A configuration that uses the bundle's stand-ins.
fn standing_in(folder: &Path, stand_ins: Vec<StandIn>) -> Config {
    let mut manifest = manifest(Vec::new());
    manifest.stand_ins = stand_ins;
    write(folder, &manifest);
    let mut config = bundled(folder, 2);
    config.dispatch.policy = PolicyKind::StandIn;
    config.dispatch.stand_in.hedge = false;
    config
}

/// The answer to a request like those before it, for which each instance takes too long.
async fn late(frontend: &Frontend, instances: &[Arc<Scripted>], request: InferRequest) -> InferResponse {
    warm(frontend, &request).await;
    instances.iter().for_each(|instance| instance.then(Act::Answer(200 * MS)));
    infer(frontend, request).await.unwrap()
}

/// Uncalibrated scores are not the probability of being right or of agreeing.
#[tokio::test(start_paused = true)]
async fn cheapest_stand_in_answers_if_it_is_sure_and_its_file_is_known() {
    let calibrated = |threshold| Some(Calibration { temperature: 1.0, threshold, curve: None });
    for (calibration, least, said, expected, has_confidence) in [
        (calibrated(0.5), 0, None, "stand-in", true),
        (calibrated(0.8), 0, None, "exact", false),
        (None, 0, None, "stand-in", false),
        (None, 1, None, "exact", false),
        (calibrated(0.5), 0, Some("0"), "stand-in", true),
        (calibrated(0.5), 0, Some("1"), "exact", false),
    ] {
        let what = format!("{calibration:?}, at least {least} %, digest {said:?}");
        let folder = tempfile::tempdir().unwrap();
        let both = [("dear", 0.6), ("cheap", 0.2)]
            .map(|(name, cost)| StandIn { calibration, ..stand_in(name, cost, 0.0) });
        let mut config = standing_in(folder.path(), both.into());
        config.dispatch.stand_in.min_confidence = Fraction::percent(least);
        let instances = workers_with(3, &["double", "dear", "cheap"].map(doubler));
        let digest = said.map(|said: &str| said.repeat(64));
        for instance in &instances {
            instance.model_takes("cheap", 2 * MS);
            digest.iter().for_each(|digest| instance.says_digest(digest));
        }
        let frontend = over(config, &instances).await;
        let response = late(&frontend, &instances, request(&[1.0])).await;
        assert_eq!((column(&response), outcome(&response)), (vec![2.0], expected), "{what}");
        match response.parameters.get("parm_confidence") {
            // Softmax of z, whose classes differ by one; y's differ by two and have a higher confidence.
            Some(Parameter::Double(confidence)) => {
                assert!((confidence - 0.7311).abs() < 1e-3, "{confidence}")
            }
            _ => assert!(!has_confidence, "{what}: {response:?}"),
        }
        let asked = instances.iter().flat_map(|instance| instance.seen.lock().clone());
        assert!(asked.into_iter().all(|seen| seen.model.name != "dear"), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn slots_code_reconstructs_every_slot_from_one_parity() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &manifest(vec![parity(Kind::Slots, 3)]));
    let instances = workers_with(4, &[doubler("double"), model("slots3", 6)]);
    let frontend = over(bundled(folder.path(), 3), &instances).await;
    instances.iter().take(2).for_each(|instance| instance.then(Act::Hang));
    let response = infer(&frontend, request(&[1.0, 2.0, 3.0])).await.unwrap();
    assert_eq!(column(&response), [2.0, 4.0, 6.0]);
    assert_eq!(response.parameters["parm_outcomes"].as_str().unwrap().matches("reconstructed").count(), 2);
    let Parameter::Double(confidence) = response.parameters["parm_confidence"] else {
        panic!("{response:?}")
    };
    assert!(
        (confidence - 0.7311).abs() < 1e-3,
        "the softmax of z, whose classes differ by one: {confidence}"
    );
}

#[tokio::test(start_paused = true)]
async fn reconstruction_with_low_confidence_is_not_served() {
    let calibration = Some(Calibration { temperature: 1.0, threshold: 0.8, curve: None });
    let folder = bundle_of_sums(|manifest| manifest.parities[0].calibration = calibration);
    for (hedges, outcomes) in [(false, ["DeadlineExceeded", "exact"]), (true, ["exact", "hedged"])] {
        let instances = workers_with(3, &[doubler("double"), model("sum2", 2)]);
        let mut config = bundled(folder.path(), 2);
        config.dispatch.coding.parm_plus.hedge = hedges;
        let frontend = over(config, &instances).await;
        warm(&frontend, &request(&[1.0])).await;
        // It takes the next query.
        assert_eq!(one_of_two_hangs(&frontend, &instances[1]).await, outcomes);
        assert_eq!(metric(&frontend, "parm_reconstructions_total", &["event=\"unsure\""]), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn instances_may_serve_parity_models_only() {
    let folder = bundle_of_sums(|_| {});
    // The parity server joins first; the deployed model, which decides about its use, arrives later.
    let mut all = workers_with(1, &[model("sum2", 2)]);
    all.extend(workers_with(2, &[doubler("double")]));
    let frontend = over(bundled(folder.path(), 2), &all).await;
    assert_eq!(one_of_two_hangs(&frontend, &all[1]).await, ["exact", "reconstructed"]);
    assert_eq!(all[0].seen.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn default_answer_is_served_at_deadline_if_accepted() {
    let folder = bundle_of_sums(|_| {});
    let mut config = bundled(folder.path(), 2);
    config.dispatch.default_answer = true;
    let instances = workers_with(1, &[doubler("double"), model("sum2", 2)]);
    let frontend = over(config, &instances).await;
    instances[0].becomes(Act::Hang);
    let asked = with(request(&[1.0]), "timeout", 50_000u64);
    let exact = infer(&frontend, with(asked.clone(), "parm_accept", "exact")).await;
    assert_eq!(exact.unwrap_err().code(), parm_protocol::Code::DeadlineExceeded);
    let response = infer(&frontend, asked).await.unwrap();
    assert_eq!((column(&response), outcome(&response)), (vec![0.5], "default"));
}

#[tokio::test(start_paused = true)]
async fn changed_bundle_is_applied() {
    let folder = bundle_of_sums(|_| {});
    let instances = workers_with(3, &[doubler("double"), model("sum2", 2), model("sum3", 2)]);
    let frontend = over(bundled(folder.path(), 2), &instances).await;
    let codes = || metric(&frontend, "parm_codes", &["model=\"double\""]);
    assert_eq!(codes(), 1.0);
    write(folder.path(), &manifest(vec![parity(Kind::Sum, 2), parity(Kind::Sum, 3)]));
    until("the new code is known", || codes() == 2.0).await;
    fs::write(folder.path().join("double/parm.toml"), "format = 1\nhalf").unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(codes(), 2.0, "an unreadable bundle must change nothing");
    assert_eq!(one_of_two_hangs(&frontend, &instances[0]).await, ["exact", "reconstructed"]);
}

/// Nets that add and subtract.
#[derive(Debug)]
struct Adders;

impl Nets for Adders {
    fn encode(&self, queries: &[f32], parities: &mut [f32]) -> Result<(), String> {
        let (first, second) = queries.split_at(parities.len());
        parities.iter_mut().zip(first.iter().zip(second)).for_each(|(sum, (a, b))| *sum = a + b);
        Ok(())
    }

    fn decode(&self, outputs: &[f32], predictions: &mut [f32]) -> Result<(), String> {
        let len = predictions.len() / 2;
        let (given, parity) = outputs.split_at(2 * len);
        for (index, prediction) in predictions.iter_mut().enumerate() {
            *prediction = parity[index % len] - given[(index + len) % (2 * len)];
        }
        Ok(())
    }
}

impl LoadNets for Adders {
    fn load(&self, encoder: &Path, decoder: &Path) -> Result<Box<dyn Nets>, String> {
        assert!(encoder.ends_with("enc/1/model.onnx") && decoder.ends_with("dec/1/model.onnx"));
        Ok(Box::new(Adders))
    }
}

#[tokio::test(start_paused = true)]
async fn learned_codes_run_with_the_provided_engine() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| ModelFile { name: name.into(), version: 1, sha256: "0".repeat(64) };
    let mut learned = parity(Kind::Learned, 2);
    learned.models.clear();
    learned.learned = Some(Learned { encoder: file("enc"), decoder: file("dec") });
    write(folder.path(), &manifest(vec![learned]));
    let config = bundled(folder.path(), 2);
    let frontend =
        Frontend::start_with_nets(config, Network::with(&[]), Timers::Runtime, Arc::new(Adders)).unwrap();
    let instances = workers_with(3, &[doubler("double")]);
    instances.iter().for_each(|instance| frontend.embed(instance.clone(), None).unwrap());
    until("all joined", || ready(&frontend) == 3.0).await;
    assert_eq!(one_of_two_hangs(&frontend, &instances[0]).await, ["exact", "reconstructed"]);
}

#[tokio::test(start_paused = true)]
async fn models_that_serve_others_are_marked_in_index() {
    let folder = bundle_of_sums(|_| {});
    let instances = workers_with(1, &[doubler("double"), model("sum2", 2)]);
    let parity_models = over(bundled(folder.path(), 2), &instances).await;
    let mut config = config(PolicyKind::ApproximateBackup);
    config.dispatch.backup_model = Some("sum2".into());
    let backups = over(config, &instances).await;
    let stand_ins = over(crate::rig::stand_in(|own| own.model = Some("sum2".into())), &instances).await;
    for (frontend, mark) in [
        (parity_models, "parity model of 'double'"),
        (backups, "backup model of 'double'"),
        (stand_ins, "stand-in of 'double'"),
    ] {
        let index = frontend.repository_index(true).unwrap();
        let listed: Vec<_> = index.iter().map(|model| (&*model.name, &*model.reason)).collect();
        assert_eq!(listed, [("double", ""), ("sum2", mark)]);
    }
}
