//! Tests the emulated chat server and `parm load --openai` against each other, as processes.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::support::Parm;
use crate::support::http;
use crate::support::process::command;

/// A worker with an emulated chat server whose iterations take half a millisecond.
fn chat_server(arguments: &[&str]) -> Parm {
    let fast =
        ["iteration_ms=0.5", "stream_ms=0", "prompt_token_ms=0"].map(|cost| format!("backend.chat.{cost}"));
    let fast: Vec<&str> = fast.iter().flat_map(|cost| ["--set", cost.as_str()]).collect();
    Parm::worker(&[&["--emulate-chat", "tiny"][..], &fast, arguments].concat())
}

fn load(parm: &Parm, arguments: &[&str]) -> Output {
    let url = format!("http://{}", parm.http);
    let fixed = ["load", &url, "--quiet", "--model", "tiny", "--warm-up", "0", "--output", "json"];
    command().args(fixed).args(arguments).output().unwrap()
}

/// The report of a run, whether or not a busy machine made it invalid.
fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn chat_and_completions_report_first_tokens_and_rates() {
    let server = chat_server(&[]);
    for api in ["chat", "completions"] {
        let size = ["--prompt-tokens", "30", "--output-tokens", "8", "--rate", "100", "--seconds", "0.5"];
        let report = report(&load(&server, &[&["--openai", api][..], &size].concat()));
        let count = |name: &str| report[name].as_u64().unwrap();
        let requests = count("offered");
        assert!(requests > 10, "{report:#}");
        assert_eq!((count("answered"), count("sent")), (requests, requests), "{report:#}");
        assert_eq!((count("prompt_tokens"), count("output_tokens")), (30 * requests, 8 * requests));
        assert_eq!(
            (&report["failures"], &report["setting"]["api"]),
            (&Value::Array(vec![]), &Value::from(api))
        );
        assert_eq!(report["ttft"]["count"], requests);
        assert!(report["ttft"]["mean_ms"].as_f64() < report["latency"]["mean_ms"].as_f64(), "{report:#}");
    }
    let metrics = http::get(server.metrics, "/metrics").body_text();
    assert!(metrics.contains("parm_chat_iterations_total"), "{metrics}");
}

#[test]
fn trace_is_replayed_faster_with_its_sizes() {
    let (server, folder) = (chat_server(&[]), tempfile::TempDir::new().unwrap());
    let (trace, samples) = (folder.path().join("trace.csv"), folder.path().join("samples.csv"));
    let rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,4\n\
                2023-11-16 18:15:46.8805900,96,9\n2023-11-16 18:15:47.0805900,5,2\n2023-11-16 18:15:59.0,5,2\n";
    fs::write(&trace, rows).unwrap();
    let arrivals = format!("trace:{}", trace.display());
    let fixed = ["--openai", "chat", "--speed", "4", "--requests", "3", "--arrivals", &arrivals];
    let output = load(&server, &[&fixed[..], &["--samples", samples.to_str().unwrap()]].concat());
    assert_eq!(report(&output)["answered"], 3, "{}", String::from_utf8_lossy(&output.stderr));
    let samples = fs::read_to_string(&samples).unwrap();
    let rows: Vec<Vec<&str>> = samples.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let sizes: Vec<[&str; 4]> = rows.iter().map(|row| [row[0], row[4], row[5], row[6]]).collect();
    assert_eq!(
        sizes,
        [
            ["0.0", "374", "4", "answered"],
            ["50000.0", "96", "9", "answered"],
            ["100000.0", "5", "2", "answered"]
        ]
    );
}

#[test]
fn embeddings_are_measured_in_one_piece() {
    let server = chat_server(&[]);
    let size = ["--prompt-tokens", "12", "--rate", "100", "--seconds", "0.3"];
    let report = report(&load(&server, &[&["--openai", "embeddings"][..], &size].concat()));
    assert_eq!(report["answered"], report["offered"], "{report:#}");
    assert_eq!((&report["output_tokens"], &report["tpot"]["count"]), (&Value::from(0), &Value::from(0)));
}

#[test]
fn faults_are_changed_at_run_time() {
    let server = chat_server(&["--faults"]);
    let plan = br#"{"error_rate": 1}"#;
    assert_eq!(http::post(server.metrics, "/faults", plan).status, 200);
    let output = load(&server, &["--openai", "chat", "--rate", "50", "--seconds", "0.3"]);
    let report = report(&output);
    assert_eq!(
        (&report["answered"], &report["failures"][0]["kind"]),
        (&Value::from(0), &Value::from("status 500"))
    );
    assert_eq!(output.status.code(), Some(1), "the run is invalid");
}

#[test]
fn invalid_flags_of_a_chat_load_are_rejected_with_advice() {
    let server = chat_server(&[]);
    let folder = tempfile::TempDir::new().unwrap();
    let trace = folder.path().join("times.txt");
    fs::write(&trace, "0.5\n1\n").unwrap();
    let arrivals = format!("trace:{}", trace.display());
    for (arguments, reason) in [
        (&["--openai", "images"][..], "chat, completions or embeddings"),
        (&["--openai", "chat", "--scenario", "offline"], "on a schedule only"),
        (&["--openai", "chat", "--speed", "2"], "only a trace"),
        (&["--openai", "chat", "--arrivals", &arrivals], "TIMESTAMP,ContextTokens,GeneratedTokens"),
        (&["--openai", "chat", "--rows", "2"], "cannot be used with"),
        (&["--openai", "chat", "--extra-body", "[]"], "give a JSON object"),
        (&["--prompt-tokens", "5"], "--openai"),
    ] {
        let output = load(&server, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{arguments:?}: {said}");
    }
}
