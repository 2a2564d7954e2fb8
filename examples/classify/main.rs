//! Classifies files by type with the magika model served by parm.
//!
//! ```text
//! parm serve --models models &
//! cargo run --example classify -- [--url http://127.0.0.1:8000] FILE...
//! ```
//! The program uses only plain HTTP and JSON, so any language can do the same.

mod http;
mod labels;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use labels::Labels;

fn main() -> ExitCode {
    match classify() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("classify: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn classify() -> Result<()> {
    let mut url = String::from("http://127.0.0.1:8000");
    let mut files = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--url" => url = arguments.next().context("--url needs an address")?,
            _ => files.push(argument),
        }
    }
    if files.is_empty() {
        bail!("usage: classify [--url http://HOST:PORT] FILE...");
    }
    let labels = Labels::read()?;
    for file in &files {
        let line = match parm_arrays::tokens(Path::new(file))? {
            Some(tokens) => predict(&url, &labels, &tokens)?,
            None => "too short for the model".into(),
        };
        print(&format!("{file}: {line}"));
    }
    Ok(())
}

/// Queries the served model; returns the label and its score.
fn predict(url: &str, labels: &Labels, tokens: &[u16]) -> Result<String> {
    let input = json!({"name": "bytes", "datatype": "INT32", "shape": [1, tokens.len()], "data": tokens});
    let answer = http::post(&format!("{url}/v2/models/magika/infer"), &json!({"inputs": [input]}))?;
    let scores = answer["outputs"][0]["data"].as_array().context("an answer without scores")?;
    let scores: Vec<f64> = scores.iter().filter_map(Value::as_f64).collect();
    let best = scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    let (class, score) = best.context("an answer without scores")?;
    Ok(format!("{} ({:.1} %)", labels.decide(class, *score)?, score * 100.0))
}

#[expect(clippy::print_stdout, reason = "this program's data")]
fn print(line: &str) {
    println!("{line}");
}
