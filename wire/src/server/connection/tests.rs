//! When a connection is idle, and when it only looks so.

use std::num::NonZeroU64;

use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::*;
use crate::scripted::{Scripted, echo};
use crate::server::Config;

/// A connection that may be idle for a second.
struct Scene {
    drain: CancellationToken,
    served: JoinHandle<()>,
    client: HealthClient<Channel>,
}

impl Scene {
    async fn new() -> Self {
        let config = Config { idle_timeout_ms: NonZeroU64::new(1000).unwrap(), ..Config::default() };
        let service = Scripted(|request, _| async { Ok(echo(request)) });
        let shared = Shared::new(config, Arc::new(service));
        let drain = shared.drain.clone();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let served = tokio::spawn(serve(ours.into(), App::new(shared), permit));
        let mut only = Some(TokioIo::new(theirs));
        let connector = tower::service_fn(move |_| {
            std::future::ready(only.take().ok_or_else(|| std::io::Error::other("it was closed")))
        });
        let channel = Endpoint::from_static("http://scene").connect_with_connector(connector).await.unwrap();
        Self { drain, served, client: HealthClient::new(channel) }
    }

    /// Watches the health, which is told once and then does not change.
    async fn watch(&mut self) -> Streaming<HealthCheckResponse> {
        let mut watch = self.client.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
        assert!(watch.message().await.unwrap().is_some());
        watch
    }

    /// Whether the connection closes before long: its clock is coarse.
    async fn closes(self) -> bool {
        tokio::time::timeout(Duration::from_secs(60), self.served).await.is_ok()
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_nothing_to_say_keeps_its_connection() {
    let mut scene = Scene::new().await;
    let mut watch = scene.watch().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    scene.drain.cancel();
    let end = watch.message().await;
    assert!(matches!(end, Ok(None)), "the watch was cut, not ended: {end:?}");
    assert!(scene.closes().await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_idle_once_its_watch_has_ended() {
    let mut scene = Scene::new().await;
    drop(scene.watch().await);
    assert!(scene.closes().await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_idle_once_its_call_is_answered() {
    let mut scene = Scene::new().await;
    scene.client.check(HealthCheckRequest::default()).await.unwrap();
    assert!(scene.closes().await);
}
