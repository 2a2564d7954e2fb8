//! Tests the emulated chat server and `parm load --openai` against each other, as processes.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::support::Parm;
use crate::support::http;
use crate::support::process::{command, refused};

/// A worker with an emulated chat server whose iterations take half a millisecond.
fn chat_server(arguments: &[&str]) -> Parm {
    let fast = ["--emulate-chat", "tiny", "--set", "backend.chat.iteration_ms=0.5"];
    Parm::worker(&[&fast, arguments].concat())
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
fn chats_report_first_tokens_and_rates() {
    let server = chat_server(&[]);
    let size = ["--prompt-tokens", "30", "--output-tokens", "8", "--rate", "100", "--seconds", "0.5"];
    let report = report(&load(&server, &[&["--openai"][..], &size].concat()));
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
    let output = load(&server, &[&fixed[..], &["--samples", samples.to_str().unwrap()]].concat());
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
