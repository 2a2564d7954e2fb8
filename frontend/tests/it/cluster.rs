//! Scripted API server of Kubernetes with the EndpointSlices of one Service and injected faults.
//!
//! Connections are in-process pipes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::DuplexStream;

/// Behaviour of the server.
#[derive(Clone, Debug)]
pub(crate) enum Manner {
    Answers,
    /// Refuses connections.
    Away,
    Refuses(u16, &'static str),
    /// Accepts requests and never responds.
    Silent,
    /// Responds without an end.
    Endless,
    /// Responds with this text.
    Babbles(&'static str),
}

/// The server.
pub(crate) struct Cluster(Mutex<State>);

struct State {
    slices: BTreeMap<String, Value>,
    manner: Manner,
    /// The valid token.
    token: Option<String>,
    asked: Vec<String>,
}

/// A pod as an endpoint; `more` overrides its fields.
pub(crate) fn pod(address: &str, node: &str, more: Value) -> Value {
    let conditions = json!({"ready": true, "serving": true, "terminating": false});
    let mut pod = json!({"addresses": [address], "nodeName": node, "zone": "z", "conditions": conditions});
    for (name, value) in more.as_object().into_iter().flatten() {
        pod[name] = value.clone();
    }
    pod
}

/// Conditions of a deleted pod that still serves or does not.
pub(crate) fn ending(serving: bool) -> Value {
    json!({"conditions": {"ready": false, "serving": serving, "terminating": true}})
}

impl Cluster {
    /// A server with this slice.
    pub(crate) fn with(endpoints: &[Value]) -> Arc<Self> {
        let (manner, token, asked) = (Manner::Answers, None, Vec::new());
        let cluster = Self(Mutex::new(State { slices: BTreeMap::new(), manner, token, asked }));
        cluster.put("w-1", endpoints);
        Arc::new(cluster)
    }

    /// Sets a slice.
    pub(crate) fn put(&self, name: &str, endpoints: &[Value]) {
        let ports =
            json!([{"name": "http", "port": 8000, "protocol": "TCP"}, {"name": "metrics", "port": 8002}]);
        let slice = json!({"metadata": {"name": name}, "addressType": "IPv4", "endpoints": endpoints, "ports": ports});
        self.0.lock().slices.insert(name.to_owned(), slice);
    }

    pub(crate) fn is(&self, manner: Manner) {
        self.0.lock().manner = manner;
    }

    /// Sets the only valid token.
    pub(crate) fn knows(&self, token: &str) {
        self.0.lock().token = Some(token.to_owned());
    }

    /// Requested paths.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.0.lock().asked.clone()
    }

    /// Opens a connection.
    pub(crate) fn dialled(self: &Arc<Self>) -> io::Result<DuplexStream> {
        if matches!(self.0.lock().manner, Manner::Away) {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
        }
        let (theirs, ours) = tokio::io::duplex(64 << 10);
        let cluster = self.clone();
        let answers = service_fn(move |request: Request<Incoming>| {
            let cluster = cluster.clone();
            async move { Ok::<_, Infallible>(cluster.answer(&request).await) }
        });
        // The client may be gone.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(ours), answers));
        Ok(theirs)
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        let authorization = request.headers().get("authorization").map(|value| value.to_str().unwrap());
        let token = authorization.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned);
        let (manner, known, list) = {
            let mut state = self.0.lock();
            state.asked.push(request.uri().to_string());
            let items: Vec<_> = state.slices.values().collect();
            (state.manner.clone(), state.token.clone(), json!({ "items": items }))
        };
        if known.is_some() && known != token {
            return refusal(401, "Unauthorized");
        }
        match manner {
            Manner::Away | Manner::Silent => std::future::pending().await,
            Manner::Refuses(status, message) => refusal(status, message),
            Manner::Babbles(text) => Response::new(text.into()),
            Manner::Endless => {
                Response::new(Body::from_stream(futures::stream::repeat(Ok::<_, Infallible>(vec![
                    b' ';
                    1 << 20
                ]))))
            }
            Manner::Answers => Response::new(list.to_string().into()),
        }
    }
}

fn refusal(status: u16, message: &str) -> Response<Body> {
    let said = json!({"kind": "Status", "status": "Failure", "message": message, "code": status});
    Response::builder().status(status).body(said.to_string().into()).unwrap()
}
