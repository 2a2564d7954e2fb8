//! Tests the command line: configuration, models, searches for stand-ins, manual pages and completions.

use std::fs;

use crate::support::files::npy;
use crate::support::process::{command, refused, run, succeeds, text};

#[test]
fn command_ends_quietly_when_its_reader_is_gone() {
    let folder = tempfile::TempDir::new().unwrap();
    let models = folder.path().to_str().unwrap();
    for arguments in [
        &["simulate", "--list"][..],
        &["doctor", "codes"],
        &["models", "list", "--models", models],
        &["completions", "bash"],
        &["serve", "--models", models, "--dump-config"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command().args(arguments).stdout(writer).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{arguments:?} {}: {said}", output.status);
    }
}

#[test]
fn invalid_configuration_exits_64_and_names_the_field() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("parm.toml");
    fs::write(&file, "[backend]\ninstances = \"many\"\n").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, field) in [
        (vec!["serve", "--config", file], "backend.instances"),
        (vec!["serve", "--set", "server.no_such_field=1"], "no_such_field"),
        (vec!["serve", "--set", "frontend.dispatch.policy=luck"], "frontend.dispatch.policy"),
        (vec!["serve", "--http", "not-an-address"], "server.http"),
        (vec!["worker", "--engine", "abacus"], "abacus"),
        (vec!["worker", "--config", "/no/such/file.toml"], "/no/such/file.toml"),
        (vec!["serve", "--worker", "ftp://x"], "ftp://x"),
        (vec!["serve", "--upstream", "frames://a:1"], "invalid server address 'frames://a:1'"),
        (
            vec!["serve", "--upstream", "http://a:1", "--set", "frontend.upstreams.probe=health"],
            "frontend.upstreams.probe",
        ),
        (vec!["serve", "--stand-in", "small", "--policy", "hedge"], "leave out the policy, or --stand-in"),
        (
            vec!["serve", "--stand-in", "small", "--set", "frontend.dispatch.policy=parm+"],
            "the policy 'parm+' does not use it",
        ),
    ] {
        refused(&arguments, Some(64), field);
    }
}

#[test]
fn error_about_a_removed_setting_says_why_it_is_gone() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("parm.toml");
    fs::write(&file, "[frontend.models.small.hedge]\nmedian_factor = 1.5\n").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, path) in [
        (["--config", file], "frontend.models.small.hedge.median_factor"),
        (["--set", "frontend.dispatch.ejection.slow_factor=4"], "frontend.dispatch.ejection.slow_factor"),
        (["--set", "frontend.dispatch.retry.ratio=0.2"], "frontend.dispatch.retry"),
        (["--set", "server.max_streams=9"], "server.max_streams"),
    ] {
        let words = format!("{path}: was removed: ");
        refused(&[&["serve", "--dump-config"], &arguments[..]].concat(), Some(64), &words);
    }
}

#[test]
fn stand_in_flag_selects_its_policy() {
    for more in [&[][..], &["--policy", "stand-in"], &["--set", "frontend.dispatch.policy=\"stand-in\""]] {
        let dumped = succeeds(&[&["serve", "--dump-config", "--stand-in", "small"], more].concat());
        assert!(dumped.contains("policy = \"stand-in\"") && dumped.contains("model = \"small\""), "{dumped}");
    }
}

#[test]
fn dumped_configuration_reproduces_itself() {
    let folder = tempfile::TempDir::new().unwrap();
    for verb in ["serve", "worker"] {
        let dumped = succeeds(&[verb, "--dump-config", "--set", "backend.instances=3"]);
        assert!(dumped.contains("instances = 3"), "{dumped}");
        let file = folder.path().join("dumped.toml");
        fs::write(&file, &dumped).unwrap();
        assert_eq!(succeeds(&[verb, "--dump-config", "--config", file.to_str().unwrap()]), dumped);
    }
}

#[test]
fn a_dumped_configuration_has_no_secrets() {
    let secrets = ["frontend.client.token=hush-1", "frontend.admin.token=hush-2"];
    let dumped = succeeds(&["serve", "--dump-config", "--set", secrets[0], "--set", secrets[1]]);
    assert!(!dumped.contains("hush") && !dumped.contains("***"), "{dumped}");
    assert!(dumped.contains("fill in `token`"), "{dumped}");
}

#[test]
fn flags_override_the_environment() {
    let dump = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = command();
        command.args(["serve", "--dump-config"]).args(arguments).envs(variables.iter().copied());
        text(&command.output().unwrap().stdout)
    };
    let variable = [("PARM_BACKEND__INSTANCES", "7")];
    assert!(dump(&variable, &[]).contains("instances = 7"));
    assert!(dump(&variable, &["--instances", "5"]).contains("instances = 5"));
}

#[test]
fn service_variables_are_ignored_and_misspelt_ones_rejected() {
    let with = |variables: &[(&str, &str)]| {
        let mut command = command();
        command.args(["serve", "--dump-config"]).envs(variables.iter().copied());
        command.output().unwrap()
    };
    // Kubernetes sets these variables in containers next to Services named `parm` and `parm-server`.
    let service = [
        ("PARM_SERVICE_HOST", "10.0.0.1"),
        ("PARM_SERVICE_PORT_HTTP", "8000"),
        ("PARM_PORT", "tcp://10.0.0.1:8000"),
        ("PARM_PORT_8000_TCP", "tcp://10.0.0.1:8000"),
        ("PARM_PORT_8000_TCP_ADDR", "10.0.0.1"),
        ("PARM_SERVER_PORT", "tcp://10.0.0.2:8000"),
        ("PARM_SERVER_SERVICE_HOST", "10.0.0.2"),
    ];
    let output = with(&service);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), text(&with(&[]).stdout));
    let misspelt = with(&[("PARM_BACKEND__INSTANCE", "7")]);
    assert_eq!(misspelt.status.code(), Some(64));
    assert!(text(&misspelt.stderr).contains("instance"), "{}", text(&misspelt.stderr));
}

#[test]
fn models_are_listed_and_inspected() {
    assert!(succeeds(&["models", "list", "--models", "tests/models"]).contains("affine"));
    let json = succeeds(&["models", "inspect", "affine", "--models", "tests/models", "--output", "json"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["inputs"][0]["name"], "x");
    assert_eq!(report["parameters"], 10);
    // The error lists the known models.
    refused(&["models", "inspect", "nothing", "--models", "tests/models"], Some(1), "affine");
    refused(&["models", "inspect", "nothing.onnx"], None, "'nothing.onnx' is not a file");
}

#[test]
fn stand_in_search_rejects_unusable_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let images = "idx:examples/fashion-mnist/images-idx3-ubyte.gz";
    let rows = folder.path().join("rows.npy");
    npy(&rows, "|u1", &[3, 5], &[0; 15]);
    let rows = format!("npy:{}", rows.display());
    let light = folder.path().join("small-int8.onnx");
    fs::copy("models/fashion-linear/1/model.onnx", &light).unwrap();
    let light = light.to_str().unwrap();
    for (arguments, reason) in [
        (
            vec!["fashion-lenet", "--data", images, "--from", light],
            "small-int8 has the suffix of 8-bit copies",
        ),
        (vec!["fashion-lenet", "--data", images, "--engine", "abacus"], "abacus"),
        (vec!["fashion-lenet", "--data", images, "--cost", "7"], "--cost"),
        (vec!["fashion-lenet", "--data", "parquet:rows"], "npy:FILE"),
        (vec!["fashion-lenet", "--data", images, "--test", "parquet:rows"], "--test parquet:rows"),
        (vec!["fashion-lenet", "--data", images, "--from", "none.onnx"], "--from none.onnx"),
        (
            vec![
                "fashion-lenet",
                "--data",
                images,
                "--from",
                "models/fashion-linear/1/model.onnx",
                "--from",
                "models/fashion-perceptron/1/model.onnx",
            ],
            "two files are called model",
        ),
        (vec!["fashion-lenet", "--data", &rows], "takes rows of [1, 28, 28], the data has rows of [5]"),
        (vec!["no-such-model", "--data", images], "no-such-model"),
        (vec!["no-such.onnx", "--data", images], "'no-such.onnx' is not a file"),
    ] {
        let runs = folder.path().join("runs");
        let all = [&["stand-in", "--runs", runs.to_str().unwrap()], &arguments[..]].concat();
        refused(&all, Some(64), reason);
        assert!(!runs.exists(), "{arguments:?} left a folder behind");
    }
}

/// Some of the example pictures with their labels, as a source of rows.
fn pictures(folder: &std::path::Path, places: std::ops::Range<usize>) -> String {
    let read = |name: &str| {
        let path = format!("examples/fashion-mnist/{name}-ubyte.gz");
        parm_arrays::read(std::path::Path::new(&path), 1 << 30).unwrap().tensor
    };
    let rows = |tensor: parm_protocol::Tensor| tensor.slice_rows(places.start, places.len()).unwrap();
    let (images, labels) = (rows(read("images-idx3")), rows(read("labels-idx1")));
    let pixels: Vec<u8> =
        images.data().iter().flat_map(|byte| (f32::from(*byte) / 255.0).to_le_bytes()).collect();
    let [at, of] = ["images", "labels"].map(|name| folder.join(format!("{name}-{}.npy", places.start)));
    npy(&at, "<f4", images.shape(), &pixels);
    npy(&of, "|u1", labels.shape(), labels.data());
    format!("npy:{},{}", at.display(), of.display())
}

#[test]
fn stand_in_search_measures_families_and_bundles_its_choice() {
    let folder = tempfile::tempdir().unwrap();
    let models = folder.path().join("models");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let data = pictures(folder.path(), 0..200);
    let test = pictures(folder.path(), 200..400);
    // Not `run`, which has a time limit: on a busy machine the search takes minutes.
    let output = command()
        .args([
            "stand-in",
            "models/fashion-lenet/1/model.onnx",
            "--name",
            "mine",
            "--data",
            &data,
            "--measure",
            "1",
            "--calibration",
            "16",
            "--judged",
            "40",
            "--cost",
            "1",
            "--runs",
            &path("runs"),
            "--models",
            models.to_str().unwrap(),
            "--from",
            "models/fashion-perceptron/1/model.onnx",
            "--test",
            &test,
            "--output",
            "json",
        ])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let meant = &found["meanings"]["outputs"][0];
    assert_eq!(meant["meaning"], "logits", "{found}");
    let reason = meant["reason"].as_str().unwrap();
    assert!(reason.contains("is the label on") && said.contains(reason), "{said}");
    assert!(said.contains("this takes about") && said.contains("a constant answer agrees"), "{said}");
    let step = said.find("quantising: int8\n").unwrap_or_else(|| panic!("a log has the steps: {said}"));
    assert!(step < said.find(": cost ").unwrap_or(said.len()), "steps come before their results: {said}");
    assert_eq!((found["engine"].as_str(), found["calibration_rows"].as_u64()), (Some("tract"), Some(16)));
    let named = |list: &str| -> Vec<String> {
        let list = found[list].as_array().unwrap().iter();
        list.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    let families = [named("candidates"), named("refused")].concat();
    assert!(families.contains(&"int8".to_owned()), "{families:?}");
    assert!(families.contains(&"from-model".to_owned()), "the model of --from is measured too: {families:?}");
    // Only candidates that no other one dominates are graded, against labels because the data has them.
    let graded = found["grades"]["candidates"].as_array().unwrap();
    assert_eq!(graded.is_empty(), named("candidates").is_empty(), "{found}");
    assert!(graded.iter().all(|one| one["gap"]["high"].is_number()), "{found}");
    // Whether a candidate pays off depends on the machine. Only a chosen one is written, in a bundle.
    let bundle = models.join("mine/parm.toml");
    assert_eq!(bundle.exists(), found["chosen"].is_string(), "{said}");
    if bundle.exists() {
        succeeds(&["models", "verify", "mine", "--models", models.to_str().unwrap()]);
        assert!(fs::read_to_string(bundle).unwrap().contains("mine-stand-in"));
    } else {
        assert!(said.contains("nothing"), "{said}");
    }
}

#[test]
fn manual_and_completions_cover_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let written = run(&["man", folder.path().to_str().expect("a path")]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    for page in ["parm.1", "parm-serve.1", "parm-models-verify.1", "parm-keys-new.1"] {
        let page = std::fs::read_to_string(folder.path().join(page)).expect(page);
        assert!(page.contains(".SH NAME"), "{page}");
    }
    let serve = std::fs::read_to_string(folder.path().join("parm-serve.1")).expect("a page");
    assert!(serve.contains("everything in one process"), "its examples: {serve}");
    for shell in ["bash", "zsh", "fish"] {
        // The script is larger than the buffer of a pipe.
        let script = text(&command().args(["completions", shell]).output().expect("it runs").stdout);
        assert!(script.contains("stand-in") && script.contains("upstream"), "{shell}: {script}");
    }
    refused(&["man", "/proc/nowhere"], None, "/proc/nowhere");
}
