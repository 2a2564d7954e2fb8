//! Lifetime of calls: deadlines, slow bodies, and clients that disconnect.

use std::time::Duration;

use futures::{StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;

struct Guard(mpsc::Sender<&'static str>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.try_send("dropped").unwrap();
    }
}

/// A service that reports when a request begins and when it is dropped, and never answers.
fn endless() -> (Scene, mpsc::Receiver<&'static str>) {
    let (told, events) = mpsc::channel(16);
    let script = Script::new(move |_, _| {
        let guard = Guard(told.clone());
        async move {
            guard.0.try_send("begun").unwrap();
            std::future::pending().await
        }
    });
    (Scene::new(script), events)
}

#[tokio::test]
async fn a_cancelled_call_is_given_up_and_the_connection_lives() {
    let (scene, mut events) = endless();
    let mut client = scene.client();
    let mut other = client.clone();
    let call = tokio::spawn(async move { client.model_infer(row()).await });
    assert_eq!(events.recv().await, Some("begun"));
    call.abort();
    assert_eq!(events.recv().await, Some("dropped"));
    assert!(other.server_live(proto::ServerLiveRequest {}).await.unwrap().into_inner().live);
}

#[tokio::test]
async fn a_client_whose_connection_breaks_has_its_calls_given_up() {
    let (scene, mut events) = endless();
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let mut server = connect(scene.grpc.clone());
    let wire = tokio::spawn(async move { tokio::io::copy_bidirectional(&mut far, &mut server).await });
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(near)).await.unwrap();
    tokio::spawn(connection);
    let mut raw = Raw { sender, headers: HeaderMap::new() };
    let call = tokio::spawn(async move { raw.call(INFER, framed(&row())).await });
    assert_eq!(events.recv().await, Some("begun"));
    wire.abort();
    assert_eq!(events.recv().await, Some("dropped"));
    assert!(call.await.unwrap_err().is_panic(), "the connection is gone");
}

#[tokio::test(start_paused = true)]
async fn service_that_exceeds_its_deadline_is_cut_off() {
    let (scene, mut events) = endless();
    let started = Instant::now();
    let status = scene.raw().await.header("grpc-timeout", "80m").call(INFER, framed(&row())).await;
    says(&status, Code::DeadlineExceeded, "deadline passed after 18");
    assert!((Duration::from_millis(180)..Duration::from_millis(190)).contains(&started.elapsed()));
    assert_eq!((events.recv().await, events.recv().await), (Some("begun"), Some("dropped")));
    assert_eq!(scene.rejected(), [""; 0], "the service saw it");
}

#[tokio::test(start_paused = true)]
async fn the_service_may_answer_until_the_deadline() {
    let scene = Scene::new(Script::new(|request, context| async move {
        tokio::time::sleep_until(context.deadline.unwrap()).await;
        Ok(crate::scripted::echo(request))
    }));
    let status = scene.raw().await.header("grpc-timeout", "80m").call(INFER, framed(&row())).await;
    assert_eq!(status.code(), Code::Ok, "{status:?}");
}

#[tokio::test]
async fn invalid_deadline_is_malformed() {
    let scene = Scene::new(Script::echo());
    let status = scene.raw().await.header("grpc-timeout", "soon").call(INFER, framed(&row())).await;
    says(&status, Code::InvalidArgument, "grpc-timeout");
    let status = scene.raw().await.header("grpc-timeout", "99999999H").call(INFER, framed(&row())).await;
    assert_eq!(status.code(), Code::Ok, "{status:?}");
    assert_eq!(scene.rejected(), ["invalid_argument"]);
}

/// A body that never ends.
fn dribble() -> RawBody {
    let first = framed(&row()).slice(..9);
    let frames = stream::iter([Ok(Frame::data(first))]).chain(stream::pending());
    BodyExt::boxed(StreamBody::new(frames))
}

#[tokio::test(start_paused = true)]
async fn slow_body_times_out() {
    let config = Config { body_timeout: Duration::from_millis(700), ..Config::default() };
    let scene = Scene::with(config, Script::echo());
    let status = scene.raw().await.send(INFER, dribble()).await;
    says(&status, Code::InvalidArgument, "did not arrive within 700ms");
    assert_eq!(scene.rejected(), ["invalid_argument"]);

    let status = scene.raw().await.header("grpc-timeout", "80m").send(INFER, dribble()).await;
    says(&status, Code::DeadlineExceeded, "deadline");
    assert_eq!(scene.rejected(), ["deadline"], "the service never saw it");
}
