//! Tests that faults which stop no process are reported: overload, missing stand-ins and unknown names in settings.

use std::process::Stdio;

use tempfile::TempDir;

use crate::doctor::{doctor, of_frontend};
use crate::support::process::{command, configuration, succeeds};
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

fn set(parm: &Parm, change: &str) -> String {
    let url = format!("http://{}", parm.admin.unwrap());
    succeeds(&["ctl", "set", "big", change, "--url", &url])
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
    let (is_well, said) = doctor(&url);
    assert!(!is_well && said.contains("FAIL model big: no instance serves its stand-in 'nosuch'"), "{said}");
    let said = set(&parm, "stand_in.model=alsono");
    assert!(said.contains("note: no instance serves the stand-in 'alsono'"), "{said}");
    let said = set(&parm, "stand_in.model=small");
    assert!(!said.contains("note:"), "{said}");
    parm.until("the cost of the stand-in is known", |_| costs());
    let (_, said) = doctor(&url);
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
    parm.until("check fails", |_| reports(doctor(&url)));
    let report = String::from_utf8(load.wait_with_output().unwrap().stdout).unwrap();
    assert!(report.contains("overloaded, the first: "), "{report}");
    assert_eq!(parm.log().matches("the load exceeds the capacity").count(), 1, "{}", parm.log());
    parm.until("check succeeds", |_| doctor(&url).0);
}

#[test]
fn settings_without_effect_are_warned_of_at_start() {
    let (_folder, config) = configuration(&format!(
        "[frontend]\nunbatched = [\"nope\", \"big\"]\nbundles = \"/nonexistent\"\n[frontend.models.bgi]\n\
         policy = \"none\"\n{MODELS}"
    ));
    let parm = Parm::start(&["serve", "--config", &config, "--instances", "1", "--admin", "127.0.0.1:0"]);
    parm.until("models are named", |parm| parm.log().contains("no instance serves these models"));
    let log = parm.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("WARN")).collect();
    for parts in [
        ["no instance serves these models", "frontend.models.bgi, frontend.unbatched = nope"],
        ["frontend.bundles does not exist", "/nonexistent"],
    ] {
        let told = |line: &&&str| parts.iter().all(|part| line.contains(part));
        assert_eq!(warnings.iter().filter(told).count(), 1, "{parts:?} in\n{log}");
    }
    assert!(!log.contains("= big"), "{log}");
    let (_, said) = of_frontend(&parm);
    let line =
        "FAIL files: frontend.bundles: /nonexistent does not exist [PARM-0009]\n       correct the path";
    assert!(said.contains(line), "{line:?} is missing in\n{said}");
    let (is_well, said) = doctor(&config);
    assert!(!is_well && said.contains("FAIL bundles: /nonexistent does not exist"), "{said}");
}
