//! Tests malformed, inconsistent and absurd bodies: each gets an error or an answer, and the process survives.

use std::io::Write;

use serde_json::json;

use super::{INFER, assert_problem, assert_serves, connect, head, serve, until_closed};
use crate::support::Parm;
use crate::support::http::{self, Answer};

const LENGTH: &str = "inference-header-content-length";

/// A request with its tensor after the JSON. The sizes may be wrong.
fn binary(shape: serde_json::Value, says: serde_json::Value, bytes: &[u8]) -> (usize, Vec<u8>) {
    let input =
        json!({"name": "x", "shape": shape, "datatype": "FP32", "parameters": {"binary_data_size": says}});
    let json = json!({"inputs": [input]}).to_string().into_bytes();
    (json.len(), [&json[..], bytes].concat())
}

fn post(parm: &Parm, json_length: &str, body: &[u8]) -> Answer {
    http::request(parm.http, "POST", INFER, &[(LENGTH, json_length)], body)
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn absurd_json_is_rejected() {
    let parm = serve(&[]);
    let input = |shape: &str, data: &str| {
        format!(r#"{{"inputs":[{{"name":"x","datatype":"FP32","shape":{shape},"data":{data}}}]}}"#)
    };
    let deep = "[".repeat(1_000_000);
    let cases = [
        ("an overflowing shape", input("[9223372036854775807, 9223372036854775807]", "[1]")),
        ("a shape beyond memory", input("[1099511627776, 4]", "[1, 2, 3, 4]")),
        ("a size beyond 64 bits", input("[99999999999999999999999999, 4]", "[1]")),
        ("a shape of fractions", input("[0.5, 8]", "[1, 2, 3, 4]")),
        ("a shape of ten thousand ones", input(&format!("[{}1]", "1,".repeat(10_000)), "[1]")),
        ("data a million lists deep", input("[1, 4]", &deep)),
        ("a request a million lists deep", deep.clone()),
        ("parameters a million objects deep", format!(r#"{{"parameters":{}"#, "{\"a\":".repeat(1_000_000))),
        ("a number beyond FP32", input("[1, 4]", "[1e400, 0, 0, 0]")),
        ("an integer of a megabyte", input("[1, 4]", &format!("[{}]", "9".repeat(1 << 20)))),
        ("a NaN in JSON", input("[1, 4]", "[NaN, 0, 0, 0]")),
        (
            "a name of a megabyte",
            input("[1, 4]", "[1, 2, 3, 4]").replace("\"x\"", &format!("\"{}\"", "é".repeat(1 << 19))),
        ),
        ("half a character", String::from("{\"inputs\": \"\\ud800\"}")),
        ("a thousand equal inputs", {
            let one = r#"{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}"#;
            format!(r#"{{"inputs":[{}{one}]}}"#, format!("{one},").repeat(999))
        }),
    ];
    for (what, body) in cases {
        let answer = http::post(parm.http, INFER, body.as_bytes());
        assert_problem(&answer, 400, what);
        assert!(answer.body.len() < 20_000, "{what}: {} bytes of answer", answer.body.len());
    }
    assert_serves(&parm, "absurd JSON");
}

#[test]
fn extreme_numbers_are_answered() {
    let parm = serve(&[]);
    let wild = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e31, f32::MAX, f32::MIN_POSITIVE / 2.0, -0.0];
    for value in wild {
        let (at, body) = binary(json!([1, 4]), json!(16), &bytes_of(&[value, 1.0, value, 2.0]));
        let answer = post(&parm, &at.to_string(), &body);
        assert_eq!(answer.status, 200, "{value}: {}", answer.body_text());
        assert!(answer.json()["outputs"][0]["data"].is_array(), "{value}: {}", answer.body_text());
        assert_serves(&parm, &format!("a row of {value}"));
    }
}

#[test]
fn socket_is_closed_when_a_client_leaves_within_its_body() {
    let parm = serve(&[]);
    let begun = head(INFER, 1 << 20) + "{\"inputs\":";
    for _ in 0..50 {
        connect(parm.http).write_all(begun.as_bytes()).unwrap();
    }
    let sockets = |parm: &Parm| parm.descriptors().iter().filter(|open| open.starts_with("socket:")).count();
    parm.until("the sockets are closed", |parm| sockets(parm) < 20);
    assert_serves(&parm, "clients left");
}

#[test]
fn invalid_http_ends_only_its_connection() {
    let parm = serve(&[]);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let oversized = [&preface[..], &[0xff; 4096]].concat();
    let settings_on_a_stream = [&preface[..], &[0, 0, 0, 4, 0, 0, 0, 0, 1]].concat();
    let garbage: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let long_head = format!("GET /v2 HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    let many_headers = format!("GET /v2 HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(10_000));
    let two_lengths =
        format!("POST {INFER} HTTP/1.1\r\nhost: p\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd");
    let bad_chunk = format!(
        "POST {INFER} HTTP/1.1\r\nhost: p\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n"
    );
    let cases: [(&str, &[u8]); 9] = [
        ("garbage", &garbage),
        ("zeros", &[0; 4096]),
        ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        ("an HTTP/2 frame of 16 MiB", &oversized),
        ("HTTP/2 settings on a stream", &settings_on_a_stream),
        ("a head of a megabyte", long_head.as_bytes()),
        ("ten thousand headers", many_headers.as_bytes()),
        ("two lengths", two_lengths.as_bytes()),
        ("a chunk beyond 64 bits", bad_chunk.as_bytes()),
    ];
    for address in [parm.http, parm.grpc, parm.metrics] {
        for (what, bytes) in cases {
            let mut stream = connect(address);
            // The server may close before all is sent.
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let answer = until_closed(&mut stream);
            assert!(!answer.starts_with(b"HTTP/1.1 2"), "{what}: {}", String::from_utf8_lossy(&answer));
        }
        assert_serves(&parm, "garbage on a port");
    }
    assert!(parm.metrics().contains("nv_inference_request_success"));
}
