//! Tries the keys that the configuration has for other servers: workers and neighbours.

use std::sync::Arc;

use parm_frontend::discovery::{Connect, Name, Wire};
use parm_frontend::neighbours;
use parm_protocol::client::{CallContext, Client};
use parm_protocol::{Code, Error, InferRequest, ModelRef, Parameters};

use super::Finding;
use super::asking::{together, within};
use crate::settings::Settings;

/// The remedy of a worker that does not accept the frontend's key, if that is the fault.
pub(super) fn key_remedy(code: Code) -> Option<&'static str> {
    matches!(code, Code::Unauthenticated | Code::PermissionDenied)
        .then_some("set frontend.client.token to one of its keys that has the role infer")
}

/// Requests a prediction without inputs, which each server rejects, and returns the rejection of the key.
pub(super) async fn rejection(client: &dyn Client, model: ModelRef) -> Option<Error> {
    let request = InferRequest {
        model,
        id: String::new(),
        parameters: Parameters::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    let answer = within(client.infer(request, CallContext::default())).await.ok()?;
    answer.err().filter(|error| key_remedy(error.code()).is_some())
}

/// Checks that the neighbours' admin APIs accept the key of this frontend.
pub(super) async fn neighbours(settings: &Settings) -> Vec<Finding> {
    let config = &settings.frontend;
    let wire = Wire::new(config.client.clone()).with_name_servers(config.instances.name_servers.clone());
    let connect: Arc<dyn Connect> = Arc::new(wire);
    let connect = &connect;
    let urls = config.neighbours.urls.clone();
    let named = together(urls, |url| addresses(connect, url)).await;
    let mut servers = Vec::new();
    for found in named {
        match found {
            Ok(urls) => servers.extend(urls.into_iter().map(Ok)),
            Err(finding) => servers.push(Err(finding)),
        }
    }
    let look = |server: Result<String, Finding>| async move {
        let url = match server {
            Ok(url) => url,
            Err(finding) => return finding,
        };
        match neighbours::look(config, connect, &url).await {
            Ok(()) => Finding::well(format!("neighbour {url}: it accepts the key")),
            Err(problem) => Finding::fails(
                format!("neighbour {url}: {problem}"),
                "correct [frontend.neighbours], or start the neighbour; the frontend starts without it and retries",
            ),
        }
    };
    together(servers, look).await
}

/// The addresses of a neighbour, or of all neighbours with a name.
async fn addresses(connect: &Arc<dyn Connect>, url: String) -> Result<Vec<String>, Finding> {
    let found = match Name::read(&url) {
        None => return Ok(vec![url]),
        Some(Err(problem)) => Err(problem),
        Some(Ok(name)) => match within(connect.resolve(&name)).await {
            Ok(found) => found.map(|found| found.iter().map(|server| name.url(server)).collect()),
            Err(late) => Err(late.to_string()),
        },
    };
    found.map_err(|problem| {
        Finding::fails(format!("neighbour {url}: {problem}"), "correct the name in frontend.neighbours.urls")
    })
}
