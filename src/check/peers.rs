//! Tries the keys that the configuration has for other servers: workers and neighbours.

use std::sync::Arc;

use parm_frontend::discovery::{Connect, Name, Wire};
use parm_frontend::neighbours;
use parm_protocol::client::{CallContext, Client};
use parm_protocol::{Code, Error, InferRequest, ModelRef, Parameters};

use super::Finding;
use super::configured::within;
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
    let mut findings = Vec::new();
    for url in &config.neighbours.urls {
        let urls = match Name::read(url) {
            None => Ok(vec![url.clone()]),
            Some(Err(problem)) => Err(problem),
            Some(Ok(name)) => match within(connect.resolve(&name)).await {
                Ok(found) => found.map(|found| found.iter().map(|server| name.url(server)).collect()),
                Err(late) => Err(late.to_string()),
            },
        };
        match urls {
            Err(problem) => findings.push(Finding::fails(
                format!("neighbour {url}: {problem}"),
                "correct the name in frontend.neighbours.urls",
            )),
            Ok(urls) => {
                for url in urls {
                    findings.push(match neighbours::look(config, &connect, &url).await {
                        Ok(()) => Finding::well(format!("neighbour {url}: it accepts the key")),
                        Err(problem) => Finding::fails(
                            format!("neighbour {url}: {problem}"),
                            "correct [frontend.neighbours], or start the neighbour; the frontend starts without it and retries",
                        ),
                    });
                }
            }
        }
    }
    findings
}
