//! Tests concurrent bodies that are each within their bound and together exceed the server's budget.

use std::cell::RefCell;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::json;
use tonic::Code;

use super::{INFER, assert_problem, assert_serves, connect, good, grpc, head, message, serve};
use crate::support::http;
use crate::support::process::Parm;

/// The smallest valid budget: one body of the largest size.
const BUDGET: usize = 64 << 10;
const MOST: usize = BUDGET * 3 / 4;

/// A good request of at least this many bytes.
fn padded(bytes: usize) -> Vec<u8> {
    let mut request = good();
    request["id"] = json!("p".repeat(bytes));
    request.to_string().into_bytes()
}

fn most_of_a_body(parm: &Parm) -> TcpStream {
    let mut client = connect(parm.http);
    client.write_all(head(INFER, BUDGET).as_bytes()).unwrap();
    client.write_all(&vec![b' '; MOST]).unwrap();
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_over_the_shared_budget_are_rejected() {
    let limits = ["max_body_bytes", "max_bytes_in_flight"]
        .map(|field| ["--set".to_owned(), format!("server.{field}={BUDGET}")]);
    let limits: Vec<&str> = limits.iter().flatten().map(String::as_str).collect();
    let parm = serve(&limits);
    let big = padded(BUDGET / 2);
    let mut client = grpc(&parm).await;
    let mut message = message();
    message.id = "p".repeat(BUDGET / 2);

    // A client sends most of a body and then pauses. If another body is in flight meanwhile, the slow one may be
    // rejected. Then the client tries again.
    let slow = RefCell::new(Some(most_of_a_body(&parm)));
    tokio::task::block_in_place(|| {
        parm.until("the slow body counts", |parm| {
            thread::sleep(Duration::from_millis(50));
            let counts = http::post(parm.http, INFER, &big).status == 503;
            if !counts {
                drop(slow.take());
                slow.replace(Some(most_of_a_body(parm)));
            }
            counts
        });
        let answer = http::post(parm.http, INFER, &big);
        assert_problem(&answer, 503, "a body over the shared budget");
        assert!(answer.body_text().contains("max_bytes_in_flight"), "{}", answer.body_text());
        assert!(answer.header("retry-after").is_some(), "{}", answer.head);
    });
    let status = client.ask(message).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("max_bytes_in_flight"), "{status}");
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "-1");
    assert_serves(&parm, "bodies over the shared budget");

    drop(slow);
    tokio::task::block_in_place(|| {
        parm.until("the slow body is released", |parm| http::post(parm.http, INFER, &big).status == 200);
    });
}
