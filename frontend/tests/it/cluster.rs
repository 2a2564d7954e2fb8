//! Scripted API server of Kubernetes with the EndpointSlices of one Service and injected faults.
//!
//! Connections are in-process pipes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Maximum words queued for a watch.
const MOST: usize = 4096;

/// Behaviour of the server.
#[derive(Clone, Debug)]
pub(crate) enum Manner {
    Answers,
    /// Refuses connections.
    Away,
    Refuses(u16, &'static str),
    /// Accepts requests and never responds.
    Silent,
    /// Responds to lists without an end.
    Endless,
    /// Responds with this text.
    Babbles(&'static str),
}

/// The server.
pub(crate) struct Cluster(Mutex<State>);

struct State {
    version: u64,
    slices: BTreeMap<String, Value>,
    /// Lines for watches, each with the version from which it is old.
    log: Vec<(u64, String)>,
    manner: Manner,
    /// The valid token.
    token: Option<String>,
    watches: Vec<Sender<Word>>,
    asked: Vec<String>,
}

/// An instruction for watches.
enum Word {
    Line(String),
    End,
    Sever,
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
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            version: 100,
            slices: BTreeMap::new(),
            log: Vec::new(),
            manner: Manner::Answers,
            token: None,
            watches: Vec::new(),
            asked: Vec::new(),
        })))
    }

    /// Sets a slice and informs watches.
    pub(crate) fn put(&self, name: &str, endpoints: &[Value]) {
        let mut state = self.0.lock();
        let kind = if state.slices.contains_key(name) { "MODIFIED" } else { "ADDED" };
        let slice = state.change(name, endpoints);
        state.tell(kind, &slice);
    }

    /// Sets a slice without informing watches.
    pub(crate) fn put_silently(&self, name: &str, endpoints: &[Value]) {
        self.0.lock().change(name, endpoints);
    }

    pub(crate) fn delete(&self, name: &str) {
        let mut state = self.0.lock();
        state.version += 1;
        let mut slice = state.slices.remove(name).expect("the slice exists");
        slice["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.tell("DELETED", &slice);
    }

    /// Sends watches any line.
    pub(crate) fn says(&self, line: &str) {
        self.0.lock().say(|| Word::Line(line.to_owned()));
    }

    /// Ends all watches regularly.
    pub(crate) fn ends_watches(&self) {
        self.0.lock().say(|| Word::End);
    }

    /// Breaks the connections of all watches.
    pub(crate) fn severs(&self) {
        self.0.lock().say(|| Word::Sever);
    }

    pub(crate) fn is(&self, manner: Manner) {
        self.0.lock().manner = manner;
    }

    /// Sets the only valid token.
    pub(crate) fn knows(&self, token: &str) {
        self.0.lock().token = Some(token.to_owned());
    }

    /// Requested paths that contain a text.
    pub(crate) fn asked(&self, part: &str) -> Vec<String> {
        self.0.lock().asked.iter().filter(|path| path.contains(part)).cloned().collect()
    }

    /// Number of open watches.
    pub(crate) fn watches(&self) -> usize {
        let mut state = self.0.lock();
        state.watches.retain(|watch| !watch.is_closed());
        state.watches.len()
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
        let (manner, known) = {
            let mut state = self.0.lock();
            state.asked.push(path.clone());
            (state.manner.clone(), state.token.clone())
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
            Manner::Endless if !path.contains("watch=true") => endless(&mut pipe).await,
            Manner::Answers | Manner::Endless if path.contains("watch=true") => {
                self.watch(&mut pipe, version(&path)).await
            }
            Manner::Answers | Manner::Endless => {
                let list = self.0.lock().list().to_string();
                whole(&mut pipe, 200, &list).await
            }
        }
    }

    async fn watch(&self, pipe: &mut DuplexStream, from: u64) -> io::Result<()> {
        let mut heard = self.0.lock().join(from);
        pipe.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
        while let Some(word) = next(&mut heard, pipe).await {
            match word {
                Word::Line(line) => chunk(pipe, &format!("{line}\n")).await?,
                Word::End => return pipe.write_all(b"0\r\n\r\n").await,
                Word::Sever => return Ok(()),
            }
        }
        Ok(())
    }
}

/// The next word, unless the watcher is gone.
async fn next(heard: &mut Receiver<Word>, pipe: &mut DuplexStream) -> Option<Word> {
    tokio::select! {
        biased;
        word = heard.recv() => word,
        _ = pipe.read_u8() => None,
    }
}

impl State {
    fn change(&mut self, name: &str, endpoints: &[Value]) -> Value {
        self.version += 1;
        let metadata = json!({"name": name, "resourceVersion": self.version.to_string()});
        let ports =
            json!([{"name": "http", "port": 8000, "protocol": "TCP"}, {"name": "metrics", "port": 8002}]);
        let slice =
            json!({"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": ports});
        self.slices.insert(name.to_owned(), slice.clone());
        slice
    }

    fn tell(&mut self, kind: &str, object: &Value) {
        let line = json!({"type": kind, "object": object}).to_string();
        self.log.push((self.version, line.clone()));
        self.say(|| Word::Line(line.clone()));
    }

    fn say(&mut self, word: impl Fn() -> Word) {
        self.watches.retain(|watch| match watch.try_send(word()) {
            Ok(()) => true,
            Err(TrySendError::Closed(_)) => false,
            Err(TrySendError::Full(_)) => panic!("too many words at once: the limit is {MOST}"),
        });
    }

    fn join(&mut self, from: u64) -> Receiver<Word> {
        let (tell, heard) = channel(MOST);
        for (_, line) in self.log.iter().filter(|(version, _)| *version > from) {
            tell.try_send(Word::Line(line.clone())).expect("the channel has room");
        }
        self.watches.push(tell);
        heard
    }

    fn list(&self) -> Value {
        let items: Vec<_> = self.slices.values().collect();
        json!({"kind": "EndpointSliceList", "metadata": {"resourceVersion": self.version.to_string()}, "items": items})
    }
}

/// The version from which a watch continues.
fn version(path: &str) -> u64 {
    let (_, version) = path.split_once("resourceVersion=").expect("a watch has a version");
    version.parse().expect("the server's own version")
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
    chunk(pipe, r#"{"metadata": {"resourceVersion": "1"}, "items": ["#).await?;
    let slice =
        json!({"metadata": {"name": "s"}, "endpoints": [{"addresses": ["10.0.0.9"]}]}).to_string() + ",";
    let many = slice.repeat((1 << 20) / slice.len());
    loop {
        chunk(pipe, &many).await?;
    }
}

async fn chunk(pipe: &mut DuplexStream, text: &str) -> io::Result<()> {
    pipe.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await
}
