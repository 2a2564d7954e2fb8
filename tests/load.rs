//! Tests `parm load` on running servers, also on the emulated chat server: its report, exit status and errors.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::files::npy;
use crate::support::process::{command, refused};
use crate::support::{Parm, http};

/// One request at a time, so that a busy machine misses no schedule.
const BRIEF: &[&str] =
    &["--scenario", "single-stream", "--seconds", "0.3", "--warm-up", "0.1", "--model", "affine"];

fn load(url: &str, arguments: &[&str]) -> Output {
    command().args(["load", url, "--quiet"]).args(BRIEF).args(arguments).output().unwrap()
}

/// The report of a run, whether or not a busy machine made it invalid.
fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Four rows for the test model, and their classes: 1 if the sum of the row is above 1.
fn rows(folder: &Path) -> (PathBuf, PathBuf) {
    let (input, labels) = (folder.join("x.npy"), folder.join("y.idx"));
    let values = [[0.0f32; 4], [1.0; 4], [-1.0, 0.0, 0.0, 1.0], [0.5, 0.5, 0.5, 0.5]];
    let bytes: Vec<u8> = values.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
    npy(&input, "<f4", &[4, 4], &bytes);
    fs::write(&labels, [0, 0, 8, 1, 0, 0, 0, 4, 0, 1, 0, 1]).unwrap();
    (input, labels)
}

#[test]
fn load_grades_answers_over_http_and_grpc() {
    let folder = tempfile::TempDir::new().unwrap();
    let (input, labels) = rows(folder.path());
    let worker = Parm::worker(&[]);
    let samples = folder.path().join("samples.csv");
    for url in [format!("http://{}", worker.http), format!("grpc://{}", worker.grpc)] {
        let output = load(
            &url,
            &[
                "--output",
                "json",
                "--input",
                input.to_str().unwrap(),
                "--labels",
                labels.to_str().unwrap(),
                "--samples",
                samples.to_str().unwrap(),
                "--require",
                "accuracy>=100%",
                "--require",
                "failed<=0%",
            ],
        );
        let report = report(&output);
        assert!(output.status.success(), "{report:#}");
        assert_eq!(report["outcomes"][0]["outcome"], "exact");
        assert_eq!(report["outcomes"][0]["accuracy"], 1.0, "{report:#}");
        assert_eq!(report["requirements"][0]["finding"], "met");
        let lines = fs::read_to_string(&samples).unwrap().lines().count();
        assert_eq!(lines - 1, report["sent"].as_u64().unwrap() as usize);
    }
}

#[test]
fn unmet_requirement_is_named_and_exits_1() {
    let worker = Parm::worker(&[]);
    let output =
        load(&format!("http://{}", worker.http), &["--require", "accuracy>=50%", "--require", "p50<=0us"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("accuracy>=50% (not measured), p50<=0ms (missed)"), "{said}");
}

#[test]
fn invalid_arguments_are_rejected_with_advice() {
    let worker = Parm::worker(&[]);
    let url = format!("http://{}", worker.http);
    for (arguments, reason) in [
        (&["--model", "nosuch"][..], "unknown model 'nosuch'"),
        (&["--input", "no/such.npy"], "no/such.npy: No such file"),
        (&["--samples", "no/such/folder/run.csv"], "cannot write no/such/folder/run.csv"),
        (&["--scenario", "offline", "--streams", "6000000"], "6000000 is not in 1..=1000000"),
        (
            &["--scenario", "server", "--rate", "1000000", "--seconds", "1000"],
            "for a shorter time or at a lower rate",
        ),
    ] {
        let model = if arguments[0] == "--model" { &[][..] } else { &["--model", "affine"] };
        refused(&[&["load", &url, "--quiet"], model, arguments].concat(), None, reason);
    }
}

/// A worker with an emulated chat server whose iterations take half a millisecond.
fn chat_server(arguments: &[&str]) -> Parm {
    let fast = ["--emulate-chat", "tiny", "--set", "backend.chat.iteration_ms=0.5"];
    Parm::worker(&[&fast, arguments].concat())
}

fn chat(parm: &Parm, arguments: &[&str]) -> Output {
    let url = format!("http://{}", parm.http);
    let fixed = ["load", &url, "--quiet", "--model", "tiny", "--warm-up", "0", "--output", "json"];
    command().args(fixed).args(arguments).output().unwrap()
}

#[test]
fn chats_report_first_tokens_and_rates() {
    let server = chat_server(&[]);
    let size = ["--prompt-tokens", "30", "--output-tokens", "8", "--rate", "100", "--seconds", "0.5"];
    let report = report(&chat(&server, &[&["--openai"][..], &size].concat()));
    let requests = report["offered"].as_u64().unwrap();
    assert!(requests > 10 && report["sent"] == requests, "{report:#}");
    let chats = &report["chats"];
    let count = |name: &str| chats[name].as_u64().unwrap();
    assert_eq!(count("answered"), requests, "{report:#}");
    assert_eq!((count("prompt_tokens"), count("output_tokens")), (30 * requests, 8 * requests));
    assert_eq!(report["failures"], Value::Array(vec![]));
    assert!(report["mean_ms"].as_f64() < chats["latency"]["mean_ms"].as_f64(), "{report:#}");
    let metrics = http::get(server.metrics, "/metrics").body_text();
    assert!(metrics.contains("parm_chat_output_tokens_total"), "{metrics}");
}

#[test]
fn trace_is_replayed_faster_with_its_sizes() {
    let (server, folder) = (chat_server(&[]), tempfile::TempDir::new().unwrap());
    let (trace, samples) = (folder.path().join("trace.csv"), folder.path().join("samples.csv"));
    let rows = "timestamp_ms,input_tokens,output_tokens\n1000,374,4\n1200,96,9\n1400,5,2\n9000,5,2\n";
    fs::write(&trace, rows).unwrap();
    let arrivals = format!("trace:{}", trace.display());
    let fixed = ["--openai", "--speed", "4", "--seconds", "1", "--arrivals", &arrivals];
    let output = chat(&server, &[&fixed[..], &["--samples", samples.to_str().unwrap()]].concat());
    assert_eq!(report(&output)["chats"]["answered"], 3, "{}", String::from_utf8_lossy(&output.stderr));
    let samples = fs::read_to_string(&samples).unwrap();
    let rows: Vec<Vec<&str>> = samples.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let sizes: Vec<[&str; 4]> = rows.iter().map(|row| [row[0], row[4], row[5], row[6]]).collect();
    assert_eq!(
        sizes,
        [["0.0", "374", "4", "exact"], ["50000.0", "96", "9", "exact"], ["100000.0", "5", "2", "exact"]]
    );
}

#[test]
fn invalid_flags_of_a_chat_load_are_rejected_with_advice() {
    let server = chat_server(&[]);
    let url = format!("http://{}", server.http);
    let folder = tempfile::TempDir::new().unwrap();
    let trace = folder.path().join("times.txt");
    fs::write(&trace, "0.5\n1\n").unwrap();
    let arrivals = format!("trace:{}", trace.display());
    for (arguments, reason) in [
        (&["--openai", "--scenario", "offline"][..], "on a schedule only"),
        (&["--openai", "--speed", "2"], "only a trace"),
        (&["--openai", "--arrivals", &arrivals], "timestamp_ms,input_tokens,output_tokens"),
        (&["--openai", "--rows", "2"], "cannot be used with"),
        (&["--openai", "--extra-body", "[]"], "give a JSON object"),
        (&["--prompt-tokens", "5"], "--openai"),
    ] {
        refused(&[&["load", &url, "--model", "tiny"], arguments].concat(), None, reason);
    }
}
