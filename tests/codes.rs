//! Stable codes in the real messages: failed commands, log lines, responses, and `parm doctor`.

use std::fs;
use std::net::TcpListener;

use parm_protocol::grpc::inference::ModelMetadataRequest;

use parm_protocol::StableCode;
use serde_json::json;
use tempfile::TempDir;

use crate::support::authority::Authority;
use crate::support::grpc::Grpc;
use crate::support::process::{refused, root, succeeds};
use crate::support::workspace::{files, members};
use crate::support::{Parm, affine, http};

const INFER: &str = "/v2/models/affine/infer";

/// Asserts that a command fails and that its message ends with the code.
fn assert_ends(arguments: &[&str], code: StableCode) {
    let said = refused(arguments, None, code.name());
    assert!(said.trim_end().ends_with(&format!("[{code}]")), "{arguments:?} must end with {code}: {said}");
}

/// Waits until the log has a line with this text and the code.
fn until_logged(parm: &Parm, text: &str, code: StableCode) {
    let field = format!("code={code}");
    let has = |line: &str| line.contains(text) && line.contains(&field);
    parm.until(&format!("'{text}' is logged with {code}"), |parm| parm.log().lines().any(has));
}

#[test]
fn invalid_settings_end_with_their_codes() {
    assert_ends(&["serve", "--set", "server.no_such_field=1"], StableCode::InvalidSetting);
    assert_ends(&["serve", "--worker", "ftp://x"], StableCode::InvalidSetting);
    assert_ends(&["worker", "--config", "/no/such/file.toml"], StableCode::ConfigurationMissing);
    assert_ends(&["worker", "--models", "tests/models", "--engine", "abacus"], StableCode::UnknownEngine);
    let library = "backend.engine.onnxruntime=/no/such/lib.so";
    let arguments = ["worker", "--models", "tests/models", "--engine", "ort", "--set", library];
    assert_ends(&arguments, StableCode::RuntimeLibrary);
}

#[test]
fn unusable_files_end_with_their_codes() {
    let local = "127.0.0.1:0";
    let serve = ["serve", "--models", "tests/models", "--http", local, "--grpc", local, "--metrics", local];
    let with = |more: &[&str], code| assert_ends(&[&serve, more].concat(), code);
    with(&["--set", "server.keys_file=/no/such/keys.toml"], StableCode::KeyFile);
    let tls = ["tls.mode=require", "tls.certificate=/no/such.pem", "tls.key=/no/such.key"];
    with(&["--set", tls[0], "--set", tls[1], "--set", tls[2]], StableCode::TlsFiles);
    with(&["--record", "/proc/no/such/file"], StableCode::RecordingStopped);
    with(&["--capture", "/proc/no/such/folder"], StableCode::CaptureStopped);
    assert_ends(&["models", "list", "--models", "/no/such/folder"], StableCode::InvalidRepository);
    assert_ends(&["models", "verify", "affine", "--models", "tests/models"], StableCode::InvalidBundle);
}

#[test]
fn unusable_addresses_end_with_their_codes() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (taken, free) = (taken.local_addr().map(|at| (at.to_string(), taken)).unwrap(), "127.0.0.1:0");
    let serve = ["serve", "--models", "tests/models", "--grpc", free, "--metrics", free, "--http"];
    assert_ends(&[&serve, &[taken.0.as_str()][..]].concat(), StableCode::AddressInUse);
    assert_ends(&[&serve, &[free, "--admin", &taken.0][..]].concat(), StableCode::AddressInUse);
    assert_ends(&[&serve, &[free, "--admin", "0.0.0.0:0"][..]].concat(), StableCode::OpenAdmin);
    assert_ends(&["ctl", "instances", "--url", "http://127.0.0.1:1"], StableCode::Unreachable);
}

#[test]
fn log_lines_have_codes_when_models_are_invalid() {
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("broken/1")).unwrap();
    fs::write(folder.path().join("broken/1/model.onnx"), "not a model").unwrap();
    fs::write(folder.path().join("broken/parm.toml"), "not = a bundle").unwrap();
    fs::create_dir_all(folder.path().join("empty/1")).unwrap();
    let parm = Parm::listening(&["serve", "--models", folder.path().to_str().unwrap()]);
    until_logged(&parm, "model not loaded", StableCode::ModelNotLoaded);
    until_logged(&parm, "invalid entry in the repository", StableCode::InvalidRepository);
    until_logged(&parm, "cannot read a bundle", StableCode::InvalidBundle);
}

#[test]
fn log_lines_have_codes_when_workers_are_missing() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("workers");
    fs::write(&file, "not an address\n").unwrap();
    let file = file.to_str().unwrap();
    let gone = ["--worker", "http://127.0.0.1:1", "--worker", "dns+http://no-such-name.invalid:1"];
    let file = format!("frontend.workers_file={file}");
    let parm = Parm::listening(&[&["serve", "--set", &file], &gone[..]].concat());
    until_logged(&parm, "instance not connected", StableCode::Unreachable);
    until_logged(&parm, "skipped an invalid line", StableCode::WorkersFile);
    until_logged(&parm, "cannot list all workers", StableCode::NameUnresolved);
}

#[test]
fn log_lines_have_codes_when_tls_fails() {
    let folder = TempDir::new().unwrap();
    let issued = Authority::new().issue_until(&["127.0.0.1"], 2020);
    let [certificate, key] = issued.write(folder.path(), "old").map(|path| path.display().to_string());
    let settings =
        ["tls.mode=require".to_owned(), format!("tls.certificate={certificate}"), format!("tls.key={key}")];
    let flags: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let parm = Parm::listening(&[&["worker", "--models", "tests/models"], &flags[..]].concat());
    until_logged(&parm, "the certificate has expired", StableCode::CertificateExpired);
    http::get(parm.http, "/v2/health/live");
    until_logged(&parm, "TLS: connection rejected", StableCode::TlsHandshake);
}

#[tokio::test]
async fn responses_have_the_code_in_a_header() {
    let parm = Parm::serve(&["--set", "server.max_body_bytes=2000"]);
    let code = |answer: &http::Answer| answer.header("parm-error-code");
    let body = |timeout: u64| {
        let mut body = affine::json(&affine::rows(1, 3));
        body["parameters"] = json!({ "timeout": timeout });
        body.to_string().into_bytes()
    };
    let named = |code: StableCode| Some(code.name().to_owned());
    let unknown = http::post(parm.http, "/v2/models/nothing/infer", &body(1_000_000));
    assert_eq!((unknown.status, code(&unknown)), (404, named(StableCode::UnknownModel)));
    let late = http::post(parm.http, INFER, &body(1));
    assert_eq!((late.status, code(&late)), (504, named(StableCode::DeadlineExpired)));
    let large = http::post(parm.http, INFER, &[b' '; 3000]);
    assert_eq!((large.status, code(&large)), (413, named(StableCode::TooLarge)));
    let invalid = http::post(parm.http, INFER, b"{}");
    assert_eq!((invalid.status, code(&invalid)), (400, None), "an invalid request has no code");
    let served = http::post(parm.http, INFER, &body(30_000_000));
    assert_eq!((served.status, code(&served)), (200, None));
    let mut client = Grpc::connect(parm.grpc).await;
    let request = ModelMetadataRequest { name: "nothing".into(), version: String::new() };
    let status = client.ask(request).await.unwrap_err();
    assert_eq!(status.metadata().get("parm-error-code").unwrap(), StableCode::UnknownModel.name());
}

#[test]
fn explain_prints_the_cause_and_the_remedy() {
    let said = succeeds(&["doctor", "PARM-0003"]);
    assert!(said.starts_with("PARM-0003: cannot listen on an address\n"), "{said}");
    assert!(said.contains("ss -ltnp") && !said.contains("PARM-0004"), "{said}");
    let all = succeeds(&["doctor", "codes"]);
    assert_eq!(all.lines().count(), StableCode::ALL.len(), "{all}");
    refused(&["doctor", "PARM-9999"], Some(1), "list all codes with parm doctor codes");
}

#[test]
fn every_code_has_an_error() {
    let crates = members().into_iter().map(|krate| root().join(krate).join("src"));
    let sources = crates.chain([root().join("src")]).flat_map(|folder| files(&folder, "rs"));
    let code: String = sources.map(|path| fs::read_to_string(path).unwrap()).collect();
    for unused in StableCode::ALL {
        assert!(code.contains(&format!("StableCode::{unused:?}")), "{unused}: no error has this code");
    }
}
