//! Calls a frontend's admin API, for the commands that inspect and change running frontends.

use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use hyper::{Method, StatusCode};
use parm_protocol::{Error, StableCode};
use parm_transport::client::{Hearing, Inquiry, Lines, Token};
use parm_transport::tls::{self, Outgoing, Spoken, Tls};
use serde_json::Value;

use crate::Failure;
use crate::codes::coded;

/// Flags of commands that call a frontend.
#[derive(Debug, Args)]
pub struct Reach {
    /// Address of the admin API
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8003", global = true)]
    pub url: String,
    /// Key for the admin API
    #[arg(long, value_name = "KEY", env = "PARM_KEY", hide_env_values = true, global = true)]
    pub key: Option<String>,
    #[command(flatten)]
    pub identity: Identity,
}

/// The certificate authorities that a client trusts, and its own certificate.
#[derive(Clone, Debug, Default, Args)]
pub struct Identity {
    /// Certificate authorities of the server (PEM), for https:// addresses
    #[arg(long, value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
    /// Client certificate for mutual TLS (PEM), with --key-file
    #[arg(long, value_name = "FILE", global = true)]
    pub cert: Option<PathBuf>,
    /// Private key of --cert (PEM)
    #[arg(long, value_name = "FILE", global = true)]
    pub key_file: Option<PathBuf>,
}

impl Identity {
    /// TLS with these files.
    pub fn tls(&self) -> Result<Tls, Error> {
        let Self { ca, cert, key_file } = self.clone();
        Tls::open(&tls::Config { ca, certificate: cert, key: key_file, ..tls::Config::default() })
    }
}

/// Names these flags in a reason that names settings of a server.
pub fn in_flags(reason: &str) -> String {
    let names = [
        ("set tls.certificate and tls.key", "give a certificate with --cert and --key-file"),
        ("tls.ca or tls.client_ca", "--ca"),
        ("tls.certificate", "--cert"),
    ];
    names.iter().fold(reason.to_owned(), |reason, (setting, flag)| reason.replace(setting, flag))
}

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
    key: Option<Token>,
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
        Ok(Self { authority: authority.to_owned(), outgoing, key: key.map(Token::new) })
    }

    /// Sends a request and reads the whole answer.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let mut answer = self.ask(method, path, body).await?;
        let read = tokio::time::timeout(PATIENCE, whole(&mut answer, ANSWER));
        let read = read.await.context("the answer is incomplete after 10 s")?;
        let bytes = read.map_err(|error| anyhow!("the connection closed during the answer: {error}"))?;
        serde_json::from_slice(&bytes).context("the answer is not JSON: is this a frontend's admin API?")
    }

    /// Sends a request whose answer arrives line by line.
    pub async fn lines(&self, path: &str) -> anyhow::Result<Lines> {
        Ok(Lines::of(self.ask(Method::GET, path, None).await?, LINE))
    }

    /// Sends a request. A status other than success becomes an error with the frontend's message.
    pub async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Hearing> {
        let authority = &self.authority;
        let asked = async {
            let socket = self.outgoing.dial(authority).await?;
            let body = body.map(|body| Bytes::from(body.to_string()));
            let inquiry = Inquiry { authority, path, token: self.key.as_ref() };
            inquiry.send(method, body, Box::new(socket)).await
        };
        let answer = tokio::time::timeout(PATIENCE, asked).await;
        let answer = answer.unwrap_or_else(|_| Err(io::Error::other("no answer within 10 s")));
        let answer = answer.map_err(|error| self.unreachable(error))?;
        match StatusCode::from_u16(answer.status()) {
            Ok(status) if !status.is_success() => {
                Err(Rejection::read(status, answer, self.key.is_some()).await.into())
            }
            _ => Ok(answer),
        }
    }

    fn unreachable(&self, error: io::Error) -> anyhow::Error {
        let (authority, reason) = (&self.authority, format!("{:#}", anyhow::Error::from(error)));
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
    }
}

/// Reads an answer of limited length.
async fn whole(answer: &mut Hearing, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if bytes.len() + chunk.len() > most {
            return Err(io::Error::other(format!("it is longer than {most} bytes")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
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
    async fn read(status: StatusCode, mut answer: Hearing, has_key: bool) -> Self {
        let body = tokio::time::timeout(PATIENCE, whole(&mut answer, REFUSAL)).await;
        let text = body.ok().and_then(Result::ok).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn rejection_whose_body_never_ends_is_reported() {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let inquiry = Inquiry { authority: "a:1", path: "/", token: None };
        let answered = async {
            theirs.read_u8().await.unwrap();
            theirs.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\n\r\n").await.unwrap();
        };
        let (answer, ()) = tokio::join!(inquiry.ask(Box::new(ours)), answered);
        let rejection = Rejection::read(StatusCode::NOT_FOUND, answer.unwrap(), false);
        let rejection = tokio::time::timeout(Duration::from_secs(60), rejection).await;
        let said = rejection.expect("it waits for ever").to_string();
        assert!(said.contains("(404): not an admin API"), "{said}");
    }

    #[tokio::test]
    async fn silent_stream_of_a_frontend_is_an_error() {
        let silent = soon(std::future::pending::<anyhow::Result<()>>());
        let waited = tokio::time::timeout(Duration::from_secs(60), silent).await.expect("it waits for ever");
        assert!(waited.unwrap_err().to_string().contains("sent nothing for"));
    }
}
