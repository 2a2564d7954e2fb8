//! Tests `parm serve --upstream`: requests that parm does not read, over servers of any kind.

use std::io::Write;
use std::net::TcpStream;
use std::thread;

use crate::support::process::{PATIENCE, refused, told};
use crate::support::upstream::Upstream;
use crate::support::{Parm, affine, http};

const CHAT: &str = "/v1/chat/completions";

fn over(servers: &[&Upstream], arguments: &[&str]) -> Parm {
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    let mut command = vec!["serve"];
    urls.iter().for_each(|url| command.extend(["--upstream", url]));
    Parm::start(&[&command, arguments].concat())
}

/// A server of the protocol is an upstream like any other, and its answers pass byte by byte.
#[test]
fn answers_are_those_of_the_server() {
    let worker = Parm::worker(&[]);
    let url = format!("http://{}", worker.http);
    let parm = Parm::start(&["serve", "--upstream", &url]);
    let body = affine::json(&affine::rows(2, 3)).to_string();
    for (method, path, body) in [
        ("POST", "/v2/models/affine/infer", body.as_bytes()),
        ("POST", "/v2/models/affine/infer", b"nonsense"),
        ("GET", "/v2/models/affine", b""),
        ("GET", "/v2/models/unknown", b""),
        ("GET", "/nowhere?a=%20b", b""),
        ("DELETE", "/v2/models/affine", b""),
    ] {
        let [own, passed] =
            [&worker, &parm].map(|server| http::request(server.http, method, path, &[("accept", "x")], body));
        assert_eq!((own.status, &own.body), (passed.status, &passed.body), "{method} {path}");
        assert_eq!(own.header("content-type"), passed.header("content-type"), "{method} {path}");
    }
    let head = http::request(parm.http, "HEAD", "/v2/models/affine", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(parm.metric("nv_inference_request_success", &["model=\"infer\""]), 2.0);
}

/// Sends the head of a stream of events and its first event.
fn begin(stream: &mut TcpStream) -> bool {
    let text = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
                9\r\ndata: a\n\n\r\n";
    stream.write_all(text.as_bytes()).is_ok()
}

/// OpenAI's client libraries show the field `error.message` and nothing else.
#[test]
fn errors_of_the_frontend_have_the_form_of_openai() {
    let server = Upstream::start(|_, _| {
        thread::sleep(PATIENCE);
        false
    });
    let parm = over(&[&server], &[]);
    for (value, status, part, code) in [
        ("50", 504, "raise the header parm-timeout-ms", serde_json::json!("PARM-0033")),
        ("soon", 400, "header parm-timeout-ms is not a number", serde_json::Value::Null),
    ] {
        let answer = http::request(parm.http, "POST", CHAT, &[("parm-timeout-ms", value)], b"ask");
        let error = &answer.json()["error"];
        let message = error["message"].as_str().unwrap();
        assert!(answer.status == status && message.contains(part), "{value}: {}", answer.body_text());
        assert_eq!(error["code"], code, "{value}");
    }
    // Clients of the Open Inference Protocol expect text.
    let infer = "/v2/models/m/infer";
    let answer = http::request(parm.http, "POST", infer, &[("parm-timeout-ms", "50")], b"ask");
    assert!(answer.status == 504 && answer.json()["error"].is_string(), "{}", answer.body_text());
}

#[test]
fn keys_are_for_parm_and_not_for_the_server() {
    let server = Upstream::saying("yes");
    let open = over(&[&server], &[]);
    let bearer = [("authorization", "Bearer sk-mine")];
    assert_eq!(http::request(open.http, "POST", CHAT, &bearer, b"a").status, 200);
    assert_eq!(server.heard()[0].header("authorization").as_deref(), Some("Bearer sk-mine"));
    let folder = tempfile::TempDir::new().unwrap();
    let keys = folder.path().join("keys.toml");
    let (_, made) = told(&["keys", "new", "app", "--role", "infer", "--file", keys.to_str().unwrap()]);
    let key = made.split_whitespace().find(|word| word.starts_with("parm_"));
    let key = key.unwrap_or_else(|| panic!("no key in {made}"));
    let file = format!("server.keys_file={}", keys.display());
    let closed = over(&[&server], &["--set", &file, "--set", "frontend.client.token=theirs"]);
    assert_eq!(http::post(closed.http, CHAT, b"a").status, 401);
    let bearer = format!("Bearer {key}");
    let answer = http::request(closed.http, "POST", CHAT, &[("authorization", &bearer)], b"a");
    assert_eq!(answer.status, 200, "{}", answer.body_text());
    assert_eq!(server.heard()[1].header("authorization").as_deref(), Some("Bearer theirs"));
}

#[test]
fn answer_that_its_server_cuts_counts_as_failed() {
    let server = Upstream::start(|_, stream| {
        begin(stream);
        false
    });
    let parm = over(&[&server], &[]);
    let answer = http::post(parm.http, CHAT, b"ask");
    assert!(answer.body_text().contains("event: error"), "{}", answer.body_text());
    let count = |name| parm.metric(name, &["model=\"chat\""]);
    parm.until("the request has ended", |_| count("nv_inference_request_failure") > 0.0);
    assert_eq!([count("nv_inference_request_success"), count("nv_inference_request_failure")], [0.0, 1.0]);
    assert_eq!(parm.metric("parm_instance_failures_total", &[]), 1.0);
    for _ in 0..3 {
        http::post(parm.http, CHAT, b"ask");
    }
    let lines = parm.log().lines().filter(|line| line.contains("ended in its middle")).count();
    assert_eq!(lines, 1, "{}", parm.log());
}

#[test]
fn settings_without_effect_on_requests_as_they_are() {
    for (flags, words) in [
        (&["--capture", "captures"][..], "frontend.capture.folder"),
        (&["--policy", "stand-in", "--stand-in", "foo"], "frontend.dispatch.policy"),
        (&["--policy", "parm", "--set", "frontend.dispatch.coding.code=\"mds\""], "frontend.dispatch.policy"),
        (
            &[
                "--set",
                "frontend.models.chat.policy=stand-in",
                "--set",
                "frontend.models.chat.stand_in.model=a",
            ],
            "frontend.models.chat.policy",
        ),
    ] {
        let serve = ["serve", "--upstream", "http://127.0.0.1:1", "--dump-config"];
        refused(&[&serve, flags].concat(), Some(64), words);
    }
}
