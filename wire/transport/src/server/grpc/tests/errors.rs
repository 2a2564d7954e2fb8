//! Every row of the table of errors.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::*;
use crate::keys::{Digest, Entry, Role};

#[tokio::test]
async fn errors_of_the_service_keep_their_class_and_words() {
    let name = || "m".to_owned();
    let cases = [
        (Error::UnknownModel { name: name() }, Code::NotFound),
        (Error::UnknownVersion { name: name(), version: "7".into(), available: vec![] }, Code::NotFound),
        (Error::NoInputs { model: name(), expected: vec!["x".into()] }, Code::InvalidArgument),
        (Error::UnknownInput { model: name(), name: "z".into(), expected: vec![] }, Code::InvalidArgument),
        (Error::UnknownOutput { model: name(), name: "z".into(), expected: vec![] }, Code::InvalidArgument),
        (
            Error::WrongShape { name: "x".into(), expected: vec![-1, 4], actual: vec![1, 5] },
            Code::InvalidArgument,
        ),
        (
            Error::WrongInputDatatype { name: "x".into(), expected: DataType::Fp32, actual: DataType::Int8 },
            Code::InvalidArgument,
        ),
        (Error::BatchTooLarge { rows: 9, limit: 8 }, Code::InvalidArgument),
        (Error::BodyTooLarge { limit: 5 }, Code::ResourceExhausted),
        (Error::Overloaded { message: "full".into(), retry_after: Duration::ZERO }, Code::Unavailable),
        (Error::DeadlineExceeded { waited: Duration::ZERO }, Code::DeadlineExceeded),
        (Error::NoInstance { model: name() }, Code::Unavailable),
        (Error::NoKey, Code::Unauthenticated),
        (Error::LocalOnly, Code::PermissionDenied),
        (Error::Unimplemented { what: "this".into() }, Code::Unimplemented),
        (Error::Internal { message: "oh".into() }, Code::Internal),
    ];
    for (error, code) in cases {
        let given = error.clone();
        let scene = Scene::new(Script::new(move |_, _| std::future::ready(Err(given.clone()))));
        let status = scene.client().model_infer(row()).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, error.to_string().as_str()));
        let pushback = status.metadata().get("grpc-retry-pushback-ms").map(|value| value.to_str().unwrap());
        assert_eq!(pushback, matches!(error, Error::Overloaded { .. }).then_some("-1"), "{error:?}");
        assert_eq!(scene.rejected(), [""; 0], "the service counts requests that it saw");
    }
}

#[tokio::test]
async fn unknown_methods_are_unimplemented() {
    let scene = Scene::new(Script::echo());
    for path in ["/", "/inference.GRPCInferenceService/Nothing", "/other.Service/ModelInfer"] {
        let status = scene.raw().await.call(path, Bytes::new()).await;
        says(&status, Code::Unimplemented, path);
        assert_eq!(scene.rejected(), ["unimplemented"]);
    }
    let status = scene.raw().await.call(&format!("/{}", "é%20/".repeat(2000)), Bytes::new()).await;
    assert!(status.message().len() < 500, "{status:?}");
}

#[tokio::test]
async fn message_over_the_limit_is_rejected_with_the_limit() {
    let message = framed(&row());
    let limit = NonZeroUsize::new(message.len() - 5).unwrap();
    let just = Scene::with(Config { max_body_bytes: limit, ..Config::default() }, Script::echo());
    assert_eq!(just.raw().await.call(INFER, message.clone()).await.code(), Code::Ok);

    let less = NonZeroUsize::new(limit.get() - 1).unwrap();
    let over = Scene::with(Config { max_body_bytes: less, ..Config::default() }, Script::echo());
    let status = over.raw().await.call(INFER, message).await;
    says(&status, Code::ResourceExhausted, &format!("more than {less} bytes"));
    assert_eq!(over.rejected(), ["too_large"]);

    // The first bytes are enough to reject it, and other calls on the same connection are not disturbed.
    let mut client = over.client();
    let status = client.model_infer(proto::ModelInferRequest { id: "i".repeat(1 << 20), ..row() }).await;
    says(&status.unwrap_err(), Code::ResourceExhausted, "bytes");
    assert!(client.server_live(proto::ServerLiveRequest {}).await.unwrap().into_inner().live);
}

#[tokio::test]
async fn keys_are_asked_for_where_they_are_needed() {
    let keys = [("ask", Role::Infer), ("look", Role::Read), ("all", Role::Control)]
        .map(|(key, role)| Entry::new(format!("{key}-er"), role, Digest::of(key.as_bytes())));
    let scene = Scene::guarded(Keys::of(&keys), Config::default(), Script::echo());
    let load = "/inference.GRPCInferenceService/RepositoryModelLoad";
    let unload = "/inference.GRPCInferenceService/RepositoryModelUnload";
    let metadata = "/inference.GRPCInferenceService/ServerMetadata";
    let statistics = "/inference.GRPCInferenceService/ModelStatistics";
    let health = "/grpc.health.v1.Health/Check";
    let live = "/inference.GRPCInferenceService/ServerLive";
    let which = proto::RepositoryModelLoadRequest { model_name: "m".into(), ..Default::default() };
    let (which, empty, row) = (framed(&which), framed(&proto::ServerLiveRequest {}), framed(&row()));
    let cases = [
        (None, INFER, &row, Code::Unauthenticated),
        (None, metadata, &empty, Code::Unauthenticated),
        (None, load, &which, Code::Unauthenticated),
        (None, "/no.such/Method", &empty, Code::Unauthenticated),
        (None, health, &empty, Code::Ok),
        (None, live, &empty, Code::Ok),
        (Some("Bearer wrong"), INFER, &row, Code::Unauthenticated),
        (Some("Bearer ask"), INFER, &row, Code::Ok),
        (Some("Basic YW55Ym9keTphc2s="), INFER, &row, Code::Ok),
        (Some("Bearer ask"), metadata, &empty, Code::Ok),
        (Some("Bearer ask"), statistics, &empty, Code::PermissionDenied),
        (Some("Bearer ask"), load, &which, Code::PermissionDenied),
        (Some("Bearer ask"), unload, &which, Code::PermissionDenied),
        (Some("Bearer look"), statistics, &empty, Code::Ok),
        (Some("Bearer look"), INFER, &row, Code::PermissionDenied),
        (Some("Bearer look"), load, &which, Code::PermissionDenied),
        (Some("Bearer all"), load, &which, Code::Ok),
        (Some("Bearer all"), unload, &which, Code::Ok),
        (Some("Bearer all"), INFER, &row, Code::Ok),
    ];
    for (header, path, body, expected) in cases {
        let mut raw = scene.raw().await;
        if let Some(header) = header {
            raw = raw.header("authorization", header);
        }
        let status = raw.call(path, body.clone()).await;
        assert_eq!(status.code(), expected, "{header:?} {path}: {status:?}");
        let counted = match expected {
            Code::Unauthenticated => vec!["unauthenticated"],
            Code::PermissionDenied => vec!["permission_denied"],
            _ => vec![],
        };
        assert_eq!(scene.rejected(), counted, "{header:?} {path}");
    }
    assert_eq!(*scene.script.changed.lock(), ["+m", "-m"]);
}

#[tokio::test(start_paused = true)]
async fn rate_limited_client_receives_the_delay() {
    let slow = Entry { rate: Some(0.5), ..Entry::new("slow", Role::Infer, Digest::of(b"hush")) };
    let scene = Scene::guarded(Keys::of(&[slow]), Config::default(), Script::echo());
    let mut raw = scene.raw().await.header("authorization", "Bearer hush");
    let row = framed(&row());
    assert_eq!(raw.call(INFER, row.clone()).await.code(), Code::Ok);
    let status = raw.call(INFER, row.clone()).await;
    says(&status, Code::ResourceExhausted, "key 'slow' exceeds its rate of 0.5 requests a second");
    let wait: u64 =
        status.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap().parse().unwrap();
    assert!((1900..=2001).contains(&wait), "{wait}");
    assert_eq!(scene.rejected(), ["too_many_requests"]);
    tokio::time::sleep(Duration::from_millis(wait)).await;
    assert_eq!(raw.call(INFER, row).await.code(), Code::Ok);
}
