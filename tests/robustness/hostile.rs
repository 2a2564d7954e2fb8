//! Tests malformed, inconsistent and absurd bodies: each gets an error or an answer, and the process survives.

use std::io::Write;

use parm_protocol::grpc::inference::InferTensorContents;
use serde_json::json;
use tonic::Code;

use super::{INFER, assert_problem, assert_serves, connect, grpc, message, serve, until_closed};
use crate::support::http::{self, Answer};
use crate::support::{Parm, affine};

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
fn binary_bodies_with_wrong_sizes_are_rejected() {
    let parm = serve(&[]);
    let row = bytes_of(&affine::rows(1, 3));
    let (at, honest) = binary(json!([1, 4]), json!(16), &row);
    assert_eq!(post(&parm, &at.to_string(), &honest).status, 200);
    let (long_at, too_long) = binary(json!([1, 4]), json!(17), &row);
    let (short_at, too_short) = binary(json!([1, 4]), json!(12), &row);
    let (huge_at, huge) = binary(json!([1, 4]), json!(u64::MAX), &row);
    let (negative_at, negative) = binary(json!([1, 4]), json!(-16), &row);
    let (wide_at, wide) = binary(json!([1i64 << 40, 1i64 << 40]), json!(16), &row);
    let cases = [
        ("a truncated tensor", at.to_string(), honest[..honest.len() - 1].to_vec()),
        ("a truncated header", at.to_string(), honest[..at - 1].to_vec()),
        ("a header that ends early", (at - 1).to_string(), honest.clone()),
        ("a header that ends late", (at + 1).to_string(), honest.clone()),
        ("a header beyond the body", (honest.len() + 1).to_string(), honest.clone()),
        ("a header of 2^64 bytes", "18446744073709551615".into(), honest.clone()),
        ("a header beyond 64 bits", "99999999999999999999999".into(), honest.clone()),
        ("a negative header", "-1".into(), honest.clone()),
        ("a header in words", "many".into(), honest.clone()),
        ("no header", honest.len().to_string(), honest.clone()),
        ("bytes left over", at.to_string(), [&honest[..], b"more"].concat()),
        ("a size that is too long", long_at.to_string(), too_long),
        ("a size that is too short", short_at.to_string(), too_short),
        ("a size of 2^64", huge_at.to_string(), huge),
        ("a negative size", negative_at.to_string(), negative),
        ("a shape that overflows", wide_at.to_string(), wide),
        ("a bare tensor of another size", "0".into(), row[..15].to_vec()),
        ("a bare tensor of nothing", "0".into(), Vec::new()),
    ];
    for (what, json_length, body) in cases {
        assert_problem(&post(&parm, &json_length, &body), 400, what);
    }
    assert_serves(&parm, "wrong sizes");
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

/// A small generator, so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

#[test]
fn mutated_requests_are_answered() {
    let parm = serve(&[]);
    let row = bytes_of(&affine::rows(1, 3));
    let (at, honest) = binary(json!([1, 4]), json!(16), &row);
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut body = honest.clone();
        for _ in 0..=random.below(4) {
            let place = random.below(body.len());
            match random.below(3) {
                0 => body[place] = random.below(256) as u8,
                1 => body.truncate(place.max(1)),
                _ => body.insert(place, b"[]{}\",:-9e\0\xff"[random.below(12)]),
            }
        }
        let answer = post(&parm, &at.to_string(), &body);
        assert!([200, 400].contains(&answer.status), "seed {seed}: {answer:?}");
    }
    assert_serves(&parm, "mutilations");
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

#[tokio::test]
async fn inconsistent_grpc_messages_are_rejected() {
    let parm = serve(&[]);
    let mut client = grpc(&parm).await;
    for shape in [vec![1 << 40, 1 << 40], vec![-1, 4], vec![i64::MIN, 4], vec![1; 10_000], vec![]] {
        let mut lie = message();
        lie.inputs[0].shape = shape.clone();
        let status = client.model_infer(lie).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{} dimensions: {status:?}", shape.len());
    }
    let mut both = message();
    both.inputs[0].contents = Some(InferTensorContents { fp32_contents: vec![1.0; 4], ..Default::default() });
    assert_eq!(client.model_infer(both).await.unwrap_err().code(), Code::InvalidArgument);
    let mut crowd = message();
    crowd.inputs = vec![crowd.inputs[0].clone(); 5_000];
    crowd.raw_input_contents = vec![crowd.raw_input_contents[0].clone(); 5_000];
    assert_eq!(client.model_infer(crowd).await.unwrap_err().code(), Code::InvalidArgument);
    let mut wild = message();
    wild.raw_input_contents[0] = bytes_of(&[f32::NAN, f32::INFINITY, 1e31, -1e31]).into();
    client.model_infer(wild).await.unwrap();
    client.model_infer(message()).await.unwrap();
}
