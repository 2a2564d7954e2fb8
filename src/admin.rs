//! Calls a frontend's admin API, for the commands that inspect and change running frontends.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parm_protocol::StableCode;
use parm_transport::tls::{Outgoing, Spoken};
use serde_json::Value;

use crate::Failure;
use crate::cli::admin::Reach;
use crate::cli::identity::{Identity, in_flags};
use crate::codes::coded;

/// Timeout for the beginning of an answer.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// Longest error body that is printed, in bytes.
const REFUSAL: usize = 4096;

/// The text for an answer that is not an admin API's.
const NOT_ADMIN: &str = "not an admin API: give the address that the frontend has as --admin";

/// Longest answer in bytes: enough for the list of the largest number of instances.
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

/// An answer that arrives line by line.
pub struct StreamLines {
    body: Incoming,
    rest: Vec<u8>,
}

impl Admin {
    /// Makes a client of the frontend that the flags name.
    pub fn of(flags: &Reach) -> Result<Self, Failure> {
        Self::at(&flags.url, flags.key.clone(), &flags.identity).map_err(Failure::Configuration)
    }

    /// Makes a client of the frontend at an address.
    pub fn at(url: &str, key: Option<String>, identity: &Identity) -> anyhow::Result<Self> {
        let (authority, secured) = authority(url)?;
        let outgoing = identity.tls()?.outgoing(authority, secured, Spoken::Http1)?;
        Ok(Self { authority: authority.to_owned(), outgoing, key })
    }

    /// Sends a request and reads the whole answer.
    pub async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let response = self.ask(method, path, body).await?;
        let read = Limited::new(response.into_body(), ANSWER).collect();
        let read =
            tokio::time::timeout(PATIENCE, read).await.context("the answer is incomplete after 10 s")?;
        let bytes =
            read.map_err(|error| anyhow!("the connection closed during the answer: {error}"))?.to_bytes();
        serde_json::from_slice(&bytes).context("the answer is not JSON: is this a frontend's admin API?")
    }

    /// Sends a request whose answer arrives line by line.
    pub async fn lines(&self, path: &str) -> anyhow::Result<StreamLines> {
        let body = self.ask("GET", path, None).await?.into_body();
        Ok(StreamLines { body, rest: Vec::new() })
    }

    /// Sends a request. A status other than success becomes an error with the frontend's message.
    pub async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Response<Incoming>> {
        let response = self.send(method, path, body).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(Rejection::read(response, self.key.is_some()).await.into())
    }

    /// Sends a request and returns the answer, whatever its status.
    async fn send(
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
            let reason = format!("{error:#}");
            if ["certificate", "TLS"].iter().any(|word| reason.contains(word)) {
                let mut problem = format!("TLS handshake with {authority} failed: {}", in_flags(&reason));
                if !problem.contains("--") {
                    problem.push_str(": check --ca, and the certificate of the server");
                }
                return coded(StableCode::TlsHandshake, problem);
            }
            let problem =
                format!("cannot reach {authority}: start the frontend with --admin {authority}: {reason}");
            coded(StableCode::Unreachable, problem)
        })
    }
}

impl StreamLines {
    /// Returns the next complete lines, at least one; `None` after the end of the stream.
    pub async fn next(&mut self) -> anyhow::Result<Option<Vec<Value>>> {
        loop {
            if let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') {
                let rest = self.rest.split_off(end + 1);
                let whole = std::mem::replace(&mut self.rest, rest);
                let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                let lines = lines.map(serde_json::from_slice).collect::<Result<_, _>>();
                return Ok(Some(lines.context("a line of the stream is not JSON")?));
            }
            if self.rest.len() > LINE {
                bail!("a line of the stream is longer than {LINE} bytes: is this a frontend's admin API?");
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame.context("the frontend closed the connection")?.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}

/// Waits for something that a frontend sends at once or every second.
pub async fn soon<T>(wait: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    waited.map_err(|_| anyhow!("the frontend sent nothing for {PATIENCE:?}: check its log"))?
}

/// Runs a future that calls a frontend.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(work)
}

/// Returns host and port of an address, and whether it uses TLS.
fn authority(url: &str) -> anyhow::Result<(&str, bool)> {
    let secured = url.strip_prefix("https://");
    let rest = secured.or_else(|| url.strip_prefix("http://")).unwrap_or_default().trim_end_matches('/');
    if rest.is_empty() || rest.contains('/') || !rest.contains(':') {
        bail!("{url}: give the address of the admin API, http://HOST:PORT or https://HOST:PORT");
    }
    Ok((rest, secured.is_some()))
}

/// An error answer of a frontend.
#[derive(Debug)]
pub struct Rejection {
    /// The HTTP status.
    pub status: StatusCode,
    said: String,
    has_key: bool,
}

impl Rejection {
    async fn read<B>(response: Response<B>, has_key: bool) -> Self
    where
        B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let status = response.status();
        let body = soon(async { Ok(Limited::new(response.into_body(), REFUSAL).collect().await) }).await;
        let body = body.ok().and_then(Result::ok);
        let text =
            body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
        let said = serde_json::from_str::<Value>(&text).ok();
        let said = said.and_then(|said| said["error"].as_str().map(str::to_owned));
        let is_admin =
            |said: &String| !said.starts_with("unknown path") || said.contains("the admin API has");
        let said = said.filter(is_admin).unwrap_or_else(|| NOT_ADMIN.to_owned());
        Self { status, said, has_key }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, self.has_key) {
            (StatusCode::UNAUTHORIZED, false) => write!(
                f,
                "the frontend requires a key (401): give one with PARM_KEY or --key; parm keys new makes one"
            ),
            (status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN), true) => {
                write!(f, "the frontend rejects the key ({}): {}", status.as_u16(), self.said)
            }
            (status, _) => write!(f, "the server rejects the request ({}): {}", status.as_u16(), self.said),
        }
    }
}

impl std::error::Error for Rejection {}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    #[tokio::test]
    async fn rejection_whose_body_never_ends_is_reported() {
        let body = StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let response = Response::builder().status(404).body(body).unwrap();
        let rejection = tokio::time::timeout(Duration::from_secs(60), Rejection::read(response, false));
        let said = rejection.await.expect("it waits for ever").to_string();
        assert!(said.contains("(404): not an admin API"), "{said}");
    }

    #[tokio::test]
    async fn silent_stream_of_a_frontend_is_an_error() {
        let silent = soon(std::future::pending::<anyhow::Result<()>>());
        let waited = tokio::time::timeout(Duration::from_secs(60), silent).await.expect("it waits for ever");
        assert!(waited.unwrap_err().to_string().contains("sent nothing for"));
    }
}
