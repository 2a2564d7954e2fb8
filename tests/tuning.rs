//! Tests `parm tune` on the command line: its report, files and errors.

use std::fs;
use std::process::Output;

use tempfile::TempDir;

use crate::support::process::{command, refused, text};

/// A small search, so that the tests are short.
const SMALL: [&str; 6] = ["--queries", "12000", "--repeats", "2", "--seed", "7"];

fn tune(folder: &TempDir, arguments: &[&str]) -> Output {
    let out = folder.path().join("tuned");
    let out = out.to_str().unwrap();
    command().arg("tune").args(arguments).args(SMALL).args(["--out", out]).output().unwrap()
}

#[test]
fn tuned_configuration_is_accepted_by_serve() {
    let folder = TempDir::new().unwrap();
    let arguments =
        ["--slo-ms", "60", "--rate", "200", "--instances", "12", "--scenario", "A", "--degraded", "2=0.9"];
    let output = tune(&folder, &[&arguments[..], &["--output", "json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let winner = &report["ranked"][0];
    assert!(winner["score"]["within"].as_f64().unwrap() > 0.9, "{winner}");
    assert!(report["reason"][0].as_str().unwrap().contains("goodput"), "{report}");

    let file = folder.path().join("tuned/parm.toml");
    let dumped = command().args(["serve", "--dump-config", "--config"]).arg(&file).output().unwrap();
    assert!(dumped.status.success(), "{}", text(&dumped.stderr));
    let dumped: toml::Table = text(&dumped.stdout).parse().unwrap();
    let settings = &winner["settings"];
    let dispatch = serde_json::to_value(&dumped["frontend"]["dispatch"]).unwrap();
    assert_eq!(&dispatch, settings, "serve reads the tuned settings");

    let again = tune(&folder, &arguments);
    assert!(again.status.success(), "its own files may be replaced: {}", text(&again.stderr));
    let table = text(&again.stdout);
    assert!(table.contains("goodput %") && table.contains("combinations"), "{table}");
}

#[test]
fn invalid_input_exits_64_with_advice() {
    let base = ["--slo-ms", "60", "--instances", "4"];
    for (arguments, word) in [
        (&[][..], "--rate"),
        (&["--rate", "1000"], "add instances"),
        (&["--rate", "50", "--scenario", "mayhem"], "shuffles"),
        (&["--rate", "50", "--available", "93"], "0.93"),
        (&["--rate", "50", "--bundle", "/no/such/parm.toml"], "/no/such/parm.toml"),
        (&["--recording", "/no/such/recording"], "/no/such/recording"),
        (&["--rate", "50", "--queries", "100"], "12000"),
    ] {
        // A repeated flag is rejected, and some cases have their own flags.
        let small = if arguments.contains(&"--queries") { &[][..] } else { &SMALL[..] };
        refused(&[&["tune"], &base[..], arguments, small].concat(), Some(64), word);
    }
}

#[test]
fn configuration_of_another_origin_is_not_overwritten() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("tuned")).unwrap();
    let path = folder.path().join("tuned/parm.toml");
    fs::write(&path, "[server]\n").unwrap();
    let output = tune(&folder, &["--slo-ms", "60", "--rate", "100", "--instances", "4"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("another folder"), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(path).unwrap(), "[server]\n");
}
