//! Scripted API server of Kubernetes with the EndpointSlices of one Service and injected faults.
//!
//! Connections are in-process pipes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

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

    pub(crate) fn delete(&self, name: &str) {
        self.0.lock().slices.remove(name).expect("the slice exists");
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
        // The client may be gone.
        tokio::spawn(async move { drop(cluster.serve(ours).await) });
        Ok(theirs)
    }

    async fn serve(&self, mut pipe: DuplexStream) -> io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(pipe.read_u8().await?);
        }
        let head = String::from_utf8(head).expect("the head is text");
        let path = head.split(' ').nth(1).expect("a path").to_owned();
        let bearer =
            |line: &str| line.to_lowercase().strip_prefix("authorization: bearer ").map(str::to_owned);
        let token = head.lines().find_map(bearer);
        let (manner, known, list) = {
            let mut state = self.0.lock();
            state.asked.push(path);
            let items: Vec<_> = state.slices.values().collect();
            (state.manner.clone(), state.token.clone(), json!({ "items": items }))
        };
        if known.is_some() && known != token {
            return refuse(&mut pipe, 401, "Unauthorized").await;
        }
        match manner {
            Manner::Away => Ok(()),
            Manner::Refuses(status, message) => refuse(&mut pipe, status, message).await,
            Manner::Silent => {
                // Until the client disconnects.
                pipe.read_u8().await.map(drop)
            }
            Manner::Babbles(text) => whole(&mut pipe, 200, text).await,
            Manner::Endless => endless(&mut pipe).await,
            Manner::Answers => whole(&mut pipe, 200, &list.to_string()).await,
        }
    }
}

async fn refuse(pipe: &mut DuplexStream, status: u16, message: &str) -> io::Result<()> {
    let said = json!({"kind": "Status", "status": "Failure", "message": message, "code": status});
    whole(pipe, status, &said.to_string()).await
}

async fn whole(pipe: &mut DuplexStream, status: u16, body: &str) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status} So\r\ncontent-length: {}\r\n\r\n", body.len());
    pipe.write_all(head.as_bytes()).await?;
    pipe.write_all(body.as_bytes()).await
}

async fn endless(pipe: &mut DuplexStream) -> io::Result<()> {
    pipe.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
    let many = " ".repeat(1 << 20);
    loop {
        pipe.write_all(format!("{:x}\r\n{many}\r\n", many.len()).as_bytes()).await?;
    }
}
