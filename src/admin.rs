//! A caller of a frontend's admin API, for the commands that look at running frontends and change them.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parm_protocol::StableCode;
use parm_transport::tls::{Outgoing, Spoken};
use serde_json::Value;

use crate::Failure;
use crate::cli::admin::Reach;
use crate::cli::identity::Identity;
use crate::codes::coded;

/// How long the frontend may take to begin an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest refusal that is shown, in bytes.
const REFUSAL: usize = 4096;

/// Longest answer that is read at one go: a list of as many instances as there may be.
const ANSWER: usize = 16 << 20;

/// Longest line of a stream, in bytes.
const LINE: usize = 4 << 20;

/// The admin API of one frontend.
#[derive(Debug)]
pub struct Admin {
    authority: String,
    outgoing: Outgoing,
    key: Option<String>,
}

/// An answer that comes line by line.
pub struct StreamLines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Admin {
    /// The frontend that the flags name.
    pub fn of(flags: &Reach) -> Result<Self, Failure> {
        Self::at(&flags.url, flags.key.clone(), &flags.identity).map_err(Failure::Configuration)
    }

    /// The frontend at an address.
    pub fn at(url: &str, key: Option<String>, identity: &Identity) -> anyhow::Result<Self> {
        let (authority, secured) = authority(url)?;
        let outgoing = identity.tls()?.outgoing(authority, secured, Spoken::Http1)?;
        Ok(Self { authority: authority.to_owned(), outgoing, key })
    }

    /// Asks for something, and reads the answer.
    pub async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let response = self.ask(method, path, body).await?;
        let read = Limited::new(response.into_body(), ANSWER).collect();
        let read = tokio::time::timeout(PATIENCE, read).await.context("the answer does not end")?;
        let bytes = read.map_err(|error| anyhow!("the answer broke off: {error}"))?.to_bytes();
        serde_json::from_slice(&bytes).context("the answer is no JSON: is this a frontend's admin API?")
    }

    /// Asks for something that comes line by line.
    pub async fn lines(&self, path: &str) -> anyhow::Result<StreamLines> {
        let body = self.ask("GET", path, None).await?.into_body();
        Ok(StreamLines { body, rest: Vec::new() })
    }

    /// Asks for something. Refusals are errors, in the frontend's words.
    async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Response<Incoming>> {
        let response = self.send(method, path, body).await?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
    }

    /// Asks for something, and takes whatever is answered.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Response<Incoming>> {
        let authority = &self.authority;
        let asked = async {
            let socket = self.outgoing.dial(authority, PATIENCE).await?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
            tokio::spawn(connection);
            let mut request = Request::builder().method(method).uri(path).header("host", authority);
            if let Some(key) = &self.key {
                request = request.header("authorization", format!("Bearer {key}"));
            }
            let body = match body {
                Some(body) => {
                    request = request.header("content-type", "application/json");
                    Bytes::from(body.to_string())
                }
                None => Bytes::new(),
            };
            anyhow::Ok(sender.send_request(request.body(Full::new(body))?).await?)
        };
        let answer =
            tokio::time::timeout(PATIENCE, asked).await.map_err(|_| anyhow!("no answer within 10 s"));
        answer.and_then(|answer| answer).map_err(|error| {
            let problem =
                format!("cannot reach {authority}: start the frontend with --admin {authority}: {error:#}");
            coded(StableCode::Unreachable, problem)
        })
    }
}

impl StreamLines {
    /// The next lines that are complete, at least one; none where the frontend ended them.
    pub async fn next(&mut self) -> anyhow::Result<Option<Vec<Value>>> {
        loop {
            if let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') {
                let rest = self.rest.split_off(end + 1);
                let whole = std::mem::replace(&mut self.rest, rest);
                let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                let lines = lines.map(serde_json::from_slice).collect::<Result<_, _>>();
                return Ok(Some(lines.context("a line of the stream is no JSON")?));
            }
            if self.rest.len() > LINE {
                bail!("a line of the stream is longer than {LINE} bytes: is this a frontend's admin API?");
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame.context("the frontend went away")?.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}

/// Runs what calls a frontend.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(work)
}

/// Host and port of an address, and whether TLS is spoken there.
fn authority(url: &str) -> anyhow::Result<(&str, bool)> {
    let secured = url.strip_prefix("https://");
    let rest = secured.or_else(|| url.strip_prefix("http://")).unwrap_or_default().trim_end_matches('/');
    if rest.is_empty() || rest.contains('/') || !rest.contains(':') {
        bail!("{url}: give the address of the admin API, http://HOST:PORT or https://HOST:PORT");
    }
    Ok((rest, secured.is_some()))
}

async fn refusal(response: Response<Incoming>) -> anyhow::Error {
    let status = response.status();
    let body = Limited::new(response.into_body(), REFUSAL).collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
    let said = serde_json::from_str::<Value>(&text).ok();
    let said = said.and_then(|said| said["error"].as_str().map(str::to_owned)).unwrap_or(text);
    match status {
        StatusCode::UNAUTHORIZED => {
            anyhow!("the frontend refuses (401): {said}; give the key with PARM_KEY or --key")
        }
        _ => anyhow!("the frontend refuses ({}): {said}", status.as_u16()),
    }
}
