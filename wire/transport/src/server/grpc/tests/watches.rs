//! The number of health watches is bounded, on a connection and on the server.

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::*;
use crate::server::grpc::watches::{FURTHER, PER_CONNECTION};

type Watch = tonic::Streaming<tonic_health::pb::HealthCheckResponse>;

/// Opens a watch and waits for its first answer.
async fn open(client: &mut HealthClient<Channel>) -> Result<Watch, Status> {
    let mut watch = client.watch(HealthCheckRequest::default()).await?.into_inner();
    let first = watch.message().await?.expect("a watch begins with the status now");
    assert_eq!(first.status(), ServingStatus::Serving);
    Ok(watch)
}

/// Opens as many watches as a connection may have.
async fn fill(client: &mut HealthClient<Channel>) -> Vec<Watch> {
    let mut watches = Vec::new();
    for _ in 0..PER_CONNECTION {
        watches.push(open(client).await.unwrap());
    }
    watches
}

#[tokio::test(start_paused = true)]
async fn watch_is_rejected_when_its_connection_has_many() {
    let scene = Scene::new(Script::echo());
    let mut client = HealthClient::new(scene.channel());
    let mut watches = fill(&mut client).await;
    let status = open(&mut client).await.expect_err("one more watch than a connection may have");
    says(&status, Code::ResourceExhausted, "on this connection: share one watch among clients");
    assert_eq!(scene.rejected(), ["too_many_requests"]);
    // Checks are answered, other connections have places, and an ended watch leaves its own.
    client.check(HealthCheckRequest::default()).await.unwrap();
    let _other = open(&mut HealthClient::new(scene.channel())).await.unwrap();
    watches.pop();
    let mut opened = open(&mut client).await;
    for _ in 0..100 {
        if opened.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        opened = open(&mut client).await;
    }
    assert!(opened.is_ok(), "the place of an ended watch stays taken");
}

#[tokio::test(start_paused = true)]
async fn further_watches_are_rejected_when_the_server_has_many() {
    let scene = Scene::new(Script::echo());
    let mut kept = Vec::new();
    let full = FURTHER / (PER_CONNECTION - 1);
    for _ in 0..full {
        let mut client = HealthClient::new(scene.channel());
        let watches = fill(&mut client).await;
        kept.push((client, watches));
    }
    let mut client = HealthClient::new(scene.channel());
    let mut last = Vec::new();
    for _ in 0..=FURTHER % (PER_CONNECTION - 1) {
        last.push(open(&mut client).await.unwrap());
    }
    let status = open(&mut client).await.expect_err("one more watch than the server may have");
    says(&status, Code::ResourceExhausted, "not the first of a connection: use one a connection");
    // A client with a connection of its own still watches.
    let mut other = HealthClient::new(scene.channel());
    let _first = open(&mut other).await.unwrap();
    says(&open(&mut other).await.err().unwrap(), Code::ResourceExhausted, "use one a connection");
}

#[tokio::test]
async fn garbage_leaves_no_watch_open() {
    let scene = Scene::new(Script::echo());
    let mut raw = scene.raw().await;
    for _ in 0..2 * PER_CONNECTION {
        let status = raw.call("/grpc.health.v1.Health/Watch", &b"\0\0\0\0\x01\xff"[..]).await;
        says(&status, Code::InvalidArgument, "decode");
    }
}
