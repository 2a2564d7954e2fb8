//! Calls of gRPC that parm does not read, over upstream servers.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use parm_protocol::{Code, Context, Error, FailedAnswer, InferenceService, OpaqueRequest};
use parm_settings::PolicyKind;
use tokio::time::Instant;

use crate::fleet::MS;
use crate::rig::metric;
use crate::upstreams::{Does, Server, context, over, request, send, text};

fn call(path: &str) -> OpaqueRequest {
    let mut request = request(Method::POST, path);
    request.headers.insert("content-type", "application/grpc".parse().unwrap());
    request
}

const PREDICT: &str = "/tensorflow.serving.PredictionService/Predict";

#[tokio::test(start_paused = true)]
async fn call_goes_to_servers_of_grpc_only() {
    let servers = [Server::new("a", Does::Answers(MS)), Server::of_grpc("b", Does::Answers(MS))];
    let frontend = over(PolicyKind::Hedge, &servers.each_ref()).await;
    for path in [PREDICT, "/my.Service/Change", "/v1/chat/completions"] {
        for _ in 0..4 {
            assert_eq!(text(send(&frontend, call(path)).await.unwrap()).await, servers[1].name, "{path}");
            let plain = send(&frontend, request(Method::POST, path)).await.unwrap();
            assert_eq!(text(plain).await, servers[0].name, "{path}");
        }
    }
    let seen = servers[1].seen.lock().clone();
    assert!(seen.iter().all(|request| request.repeatable == (request.target == PREDICT)));
    assert_eq!(metric(&frontend, "nv_inference_request_success", &["model=\"grpc-other\""]), 8.0);
    let frontend = over(PolicyKind::Hedge, &[&servers[0]]).await;
    let error = send(&frontend, call(PREDICT)).await.unwrap_err();
    assert!(error.code() == Code::Unavailable && error.to_string().contains("grpc://"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn call_ends_at_the_deadline_of_its_client() {
    let server = Server::of_grpc("b", Does::Hangs);
    let frontend = over(PolicyKind::Hedge, &[&server]).await;
    let began = Instant::now();
    let context = Context { deadline: Some(began + 300 * MS), ..context() };
    let error = frontend.forward(call(PREDICT), context).await.unwrap_err();
    assert_eq!((error.code(), began.elapsed().as_millis()), (Code::DeadlineExceeded, 300));
}

#[tokio::test(start_paused = true)]
async fn failed_call_is_tried_elsewhere_and_its_status_is_shown() {
    let failed = |status: &str| {
        let headers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())]);
        let answer = FailedAnswer { status: StatusCode::OK, headers, body: Bytes::new() };
        Does::Fails(Error::Answered(Box::new(answer)))
    };
    for status in ["14", "8", "13", "2"] {
        let servers = [Server::of_grpc("a", failed(status)), Server::of_grpc("b", Does::Answers(MS))];
        let frontend = over(PolicyKind::Hedge, &servers.each_ref()).await;
        for _ in 0..4 {
            let answer = send(&frontend, call(PREDICT)).await.unwrap();
            assert_eq!(text(answer).await, servers[1].name, "{status}");
        }
        servers[1].now(failed(status));
        let answer = send(&frontend, call(PREDICT)).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.headers["grpc-status"].to_str().unwrap()), (200, status));
    }
}
