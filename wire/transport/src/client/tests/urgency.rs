//! The urgency of a job reaches the server over every transport.

use super::*;
use crate::server::{Config as ServerConfig, Server};

#[tokio::test]
async fn urgency_survives_every_transport() {
    let mut config = ServerConfig::default();
    for address in [&mut config.http, &mut config.grpc, &mut config.metrics] {
        *address = "127.0.0.1:0".parse().unwrap();
    }
    // A service that answers with the received parameters.
    let service = Scripted(|request: InferRequest, _| async { Ok(echo(request)) });
    let server = crate::server::Server::bind(config, Arc::new(service)).await.unwrap();
    let addresses = Server::addresses(&server);
    let stop = CancellationToken::new();
    let running = tokio::spawn(server.run(stop.clone()));
    let (http, grpc) = (addresses.http, addresses.grpc);
    for url in [format!("http://{http}"), format!("frames://{http}"), format!("grpc://{grpc}")] {
        let client = connect(&url.parse().unwrap(), &Config::default()).unwrap();
        for priority in [1u64, 255] {
            let mut urgent = request("q");
            urgent.parameters.insert("priority".into(), priority.into());
            let answer = client.infer(urgent, CallContext::default()).await.unwrap();
            let came = answer.parameters.get("priority").and_then(|priority| priority.as_u64());
            assert_eq!(came, Some(priority), "{url}");
        }
    }
    stop.cancel();
    running.await.unwrap();
}
