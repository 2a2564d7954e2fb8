//! Tests that faults which stop no process are reported: overload, missing stand-ins and unknown names in settings.

use std::fs;
use std::process::Stdio;

use tempfile::TempDir;

use crate::support::process::{command, configuration, root};
use crate::support::{Parm, http};

/// Two models with one signature. An instance serves twenty queries of `big` a second.
const MODELS: &str = r#"
[backend.emulated.big]
input = [4]
outputs = 2
time_ms = { kind = "constant", value = 50.0 }

[backend.emulated.small]
input = [4]
outputs = 2
time_ms = { kind = "constant", value = 5.0 }
"#;

fn models() -> (TempDir, String) {
    configuration(MODELS)
}

/// Runs `parm check`: whether it succeeds, and its output.
fn checked(what: &str) -> (bool, String) {
    let output = command().args(["check", what]).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

fn set(parm: &Parm, change: &str) -> String {
    let url = format!("http://{}", parm.admin.unwrap());
    let output = command().args(["ctl", "set", "big", change, "--url", &url]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn missing_stand_in_is_reported_until_it_is_corrected() {
    let (_folder, config) = models();
    let worker = Parm::start(&["worker", "--config", &config, "--instances", "1"]);
    let parm = Parm::frontend(&[&worker], &["--stand-in", "nosuch", "--admin", "127.0.0.1:0"]);
    let url = format!("http://{}", parm.admin.unwrap());
    let costs = || http::get(parm.metrics, "/metrics").body_text().contains("parm_stand_in_cost{");
    parm.until("the log warns", |parm| parm.log().contains("no instance serves the stand-in"));
    assert!(!costs(), "it has no cost");
    let (is_well, said) = checked(&url);
    assert!(!is_well && said.contains("FAIL model big: no instance serves its stand-in 'nosuch'"), "{said}");
    let said = set(&parm, "stand_in.model=alsono");
    assert!(said.contains("note: no instance serves the stand-in 'alsono'"), "{said}");
    let said = set(&parm, "stand_in.model=small");
    assert!(!said.contains("note:"), "{said}");
    parm.until("the cost of the stand-in is known", |_| costs());
    let (_, said) = checked(&url);
    assert!(!said.contains("model big: no instance serves"), "{said}");
}

#[test]
fn overload_is_reported_while_it_lasts() {
    // Batches would carry this load.
    let (_folder, config) = configuration(&format!("{MODELS}[frontend.dispatch.batch]\nmax_size = 1\n"));
    let parm = Parm::start(&["serve", "--config", &config, "--instances", "1", "--admin", "127.0.0.1:0"]);
    let (url, client) = (format!("http://{}", parm.admin.unwrap()), format!("http://{}", parm.http));
    let load = command()
        .args(["load", &client, "--model", "big", "--rate", "100", "--seconds", "20", "--deadline-ms", "300"])
        .args(["--quiet"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    parm.until("the log warns", |parm| parm.log().contains("the load exceeds the capacity"));
    let reports = |(is_well, said): (bool, String)| {
        !is_well && said.contains("FAIL model big: ") && said.contains(" queries of the last 5 s fail: ")
    };
    parm.until("check fails", |_| reports(checked(&url)));
    let report = String::from_utf8(load.wait_with_output().unwrap().stdout).unwrap();
    assert!(report.contains("overloaded, the first: "), "{report}");
    assert_eq!(parm.log().matches("the load exceeds the capacity").count(), 1, "{}", parm.log());
    parm.until("check succeeds", |_| checked(&url).0);
}

#[test]
fn check_reports_names_of_models_that_do_not_exist() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("parm.toml");
    let named = |name: &str| {
        let config = format!(
            "[backend]\nmodels = \"tests/models\"\nengine.name = \"tract\"\nload = [\"{name}\"]\n\
             unbatched = [\"{name}\"]\nbatched = [\"{name}\"]\n\
             [backend.weights]\n{name} = 4\n\
             [frontend]\nunbatched = [\"{name}\"]\n[frontend.models.{name}]\npolicy = \"none\"\n"
        );
        fs::write(&file, config).unwrap();
        checked(file.to_str().unwrap()).1
    };
    let said = named("afine");
    for setting in [
        "frontend.models",
        "frontend.unbatched",
        "backend.load",
        "backend.batched",
        "backend.unbatched",
        "backend.weights",
    ] {
        let line = format!("FAIL {setting}: the model repository has no model 'afine': it has affine\n");
        assert!(said.contains(&line), "{line:?} is missing in\n{said}");
    }
    let said = named("affine");
    assert!(!said.contains("the model repository has no model"), "{said}");
}

#[test]
fn settings_without_effect_are_warned_of_at_start() {
    let (_folder, config) = configuration(&format!(
        "[frontend]\nunbatched = [\"nope\", \"big\"]\nbundles = \"/nonexistent\"\n[frontend.models.bgi]\n\
         policy = \"none\"\n[backend.weights]\nbig = 2\nsmal = 4\n{MODELS}"
    ));
    let parm = Parm::start(&["serve", "--config", &config, "--instances", "1", "--admin", "127.0.0.1:0"]);
    parm.until("models are named", |parm| parm.log().contains("no instance serves these models"));
    let log = parm.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("WARN")).collect();
    for parts in [
        ["no instance serves these models", "frontend.models.bgi, frontend.unbatched = nope"],
        ["frontend.bundles does not exist", "/nonexistent"],
        ["backend.weights names an unknown model", "smal"],
    ] {
        let told = |line: &&&str| parts.iter().all(|part| line.contains(part));
        assert_eq!(warnings.iter().filter(told).count(), 1, "{parts:?} in\n{log}");
    }
    assert!(!log.contains("= big"), "{log}");
    let (_, said) = checked(&format!("http://{}", parm.admin.unwrap()));
    for line in [
        "note frontend.models: no instance serves a model 'bgi' now",
        "note frontend.unbatched: no instance serves a model 'nope' now",
        "FAIL files: frontend.bundles: /nonexistent does not exist [PARM-0009]\n       correct the path",
    ] {
        assert!(said.contains(line), "{line:?} is missing in\n{said}");
    }
    let (is_well, said) = checked(&config);
    assert!(!is_well && said.contains("FAIL bundles: /nonexistent does not exist"), "{said}");
}

#[test]
fn unknown_names_are_told_over_workers_and_upstream_servers() {
    let worker = Parm::worker(&[]);
    let url = format!("http://{}", worker.http);
    let over_workers = format!("[frontend]\nworkers = [\"{url}\"]\nunbatched = [\"nope\"]\n");
    let (_folder, config) = configuration(&over_workers);
    let (_, said) = checked(&config);
    assert!(said.contains("note frontend.unbatched: no worker serves a model 'nope' now"), "{said}");
    let over_upstreams = format!("[frontend]\nunbatched = [\"nope\"]\nupstreams.urls = [\"{url}\"]\n");
    let (_folder, config) = configuration(&over_upstreams);
    let parm = Parm::start(&["serve", "--config", &config]);
    parm.until("the name is told", |parm| parm.log().contains("frontend.unbatched = nope"));
}

#[test]
fn check_reads_bundles_only_from_the_configured_folder() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("models/m/parm.toml");
    fs::create_dir_all(folder.path().join("models/m/1")).unwrap();
    fs::create_dir_all(folder.path().join("bundles")).unwrap();
    fs::copy(root().join("tests/models/affine/1/model.onnx"), folder.path().join("models/m/1/model.onnx"))
        .unwrap();
    fs::write(&manifest, "wrong").unwrap();
    let said = |bundles: &str| {
        let models = folder.path().join("models");
        let (_folder, config) = configuration(&format!("[backend]\nmodels = {models:?}\n{bundles}"));
        checked(&config).1
    };
    assert!(said("").contains("FAIL bundle: m: "), "{}", said(""));
    let elsewhere = format!("[frontend]\nbundles = {:?}\n", folder.path().join("bundles"));
    assert!(!said(&elsewhere).contains("bundle: m"), "{}", said(&elsewhere));
}

/// An address of this machine that is free now.
fn free() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn check_reports_settings_that_have_one_port() {
    let address = free();
    let server = format!(
        "[server]\nhttp = \"{address}\"\ngrpc = \"127.0.0.1:0\"\nmetrics = \"{address}\"\n[frontend.admin]\naddress = \"127.0.0.1:0\"\n"
    );
    let (_folder, config) = configuration(&format!("{server}{MODELS}"));
    let (is_well, said) = checked(&config);
    assert!(!is_well && said.contains(&format!("ok   port: server.http {address} is free")), "{said}");
    assert!(said.contains(&format!("FAIL port: server.metrics {address}: ")), "{said}");
    assert!(said.contains("server.http has this port\n       give each its own port"), "{said}");
}

#[test]
fn check_names_the_setting_of_an_upstream_server() {
    let (_folder, config) = configuration(&format!("[frontend.upstreams]\nurls = [\"http://{}\"]\n", free()));
    let (is_well, said) = checked(&config);
    assert!(!is_well && said.contains("FAIL server http://127.0.0.1:"), "{said}");
    assert!(said.contains("correct frontend.upstreams.urls"), "{said}");
}

#[test]
fn check_of_a_file_without_models_reports_its_other_faults() {
    let tls = "[tls]\nmode = \"allow\"\ncertificate = \"absent.crt\"\nkey = \"absent.key\"\n";
    let (folder, config) = configuration(tls);
    // A folder named models in the working directory would be served.
    let output = command().current_dir(folder.path()).args(["check", &config]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && said.contains("no models to serve"), "{said}");
    assert!(said.contains("absent.crt"), "{said}");
}
