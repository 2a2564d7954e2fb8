//! The API server: its settings, its requests (a list, and a watch line by line), and its errors.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parm_transport::client::{Hearing, Inquiry, Lines, Token};
use parm_transport::tls::{self, Outgoing, Spoken, Tls};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::census::{Census, List, Rebuff};
use super::service::{Service, is_label};
use crate::discovery::connect::{Connect, authority};

/// DNS address of the API server in every cluster.
const USUAL: &str = "https://kubernetes.default.svc";

/// Maximum bytes of a list: a slice usually has up to a hundred endpoints and 50 kB.
const LIST_BYTES: usize = 64 << 20;

/// Maximum bytes of a line of a watch: one slice.
const LINE_BYTES: usize = 4 << 20;

/// Maximum bytes read of an error response.
const REFUSAL_BYTES: usize = 16 << 10;

/// Maximum bytes of a token.
const TOKEN_BYTES: u64 = 64 << 10;

/// Timeout of a whole list, as a multiple of the timeout of a response's start.
const LIST_PATIENCE: u32 = 6;

/// The API server, for one Service.
pub struct ApiServer {
    connect: Arc<dyn Connect>,
    config: Config,
    authority: String,
    outgoing: Outgoing,
    tls: Tls,
    secured: bool,
    namespace: String,
    service: Service,
}

/// An open watch.
pub(super) struct Watch(Lines);

impl ApiServer {
    /// Reads the service account, except for the token. Makes no request.
    pub fn open(config: &Config, service: &Service, connect: Arc<dyn Connect>) -> Result<Self, Trouble> {
        let server = config.server.as_deref().unwrap_or(USUAL);
        let (authority, secured) =
            authority(server).ok_or_else(|| Trouble::BadServer { server: server.to_owned() })?;
        let account = |reason: String| Trouble::Account { reason };
        let tls = match secured {
            false => Tls::default(),
            true => {
                let ca = Some(authorities(config));
                let files = tls::Config { ca, ..tls::Config::default() };
                Tls::open(&files).map_err(|error| account(error.to_string()))?
            }
        };
        let outgoing = tls.outgoing(&authority, secured, Spoken::Http1);
        let outgoing = outgoing.map_err(|error| account(error.to_string()))?;
        let namespace = match &service.namespace {
            Some(namespace) => namespace.clone(),
            None => {
                let file = config.service_account.join("namespace");
                let read = read(&file)
                    .map_err(|reason| account(format!("the Service has no namespace, and {reason}")))?;
                match read.trim() {
                    name if is_label(name, 63) => name.to_owned(),
                    _ => return Err(account(format!("{} has no valid name", file.display()))),
                }
            }
        };
        let (config, service) = (config.clone(), service.clone());
        Ok(Self { connect, config, authority, outgoing, tls, secured, namespace, service })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// TLS towards the API server; the caller should follow the file of its certificate authorities.
    pub(in crate::discovery) fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Lists all endpoints. Returns them with the version from which a watch continues.
    pub(super) async fn list(&self) -> Result<(Census, String), Trouble> {
        let waited = self.config.timeout * LIST_PATIENCE;
        let listed = async {
            let mut hearing = self.ask("").await?;
            self.whole(&mut hearing, "a list", LIST_BYTES).await
        };
        let body = timeout(waited, listed).await.map_err(|_| Trouble::Silent { waited })??;
        let list: List = serde_json::from_slice(&body).map_err(Trouble::unreadable)?;
        let mut census = Census::new(self.service.clone());
        list.items.into_iter().try_for_each(|slice| census.put(slice))?;
        Ok((census, list.metadata.resource_version))
    }

    /// Starts a watch from the version of a list, for so long.
    pub(super) async fn watch(&self, version: &str, length: Duration) -> Result<Watch, Trouble> {
        let seconds = length.as_secs().max(1);
        let mut query = format!("&watch=true&timeoutSeconds={seconds}&resourceVersion=");
        escape(&mut query, version);
        let hearing = self.ask(&query).await?;
        Ok(Watch(Lines::of(hearing, LINE_BYTES)))
    }

    /// Checks that following would work, including the permission to watch. Returns the addresses of all endpoints that
    /// are not terminating, and why some are unusable.
    pub async fn look(&self) -> Result<(Vec<String>, Option<String>), Trouble> {
        let (census, version) = self.list().await?;
        self.watch(&version, self.config.watch).await?;
        let urls = census.found().into_iter().filter(|(_, found)| !found.terminating).map(|(url, _)| url);
        Ok((urls.collect(), census.problem().map(str::to_owned)))
    }

    /// Requests the slices of the Service, with further query parameters.
    async fn ask(&self, query: &str) -> Result<Hearing, Trouble> {
        let token = self.token().await?;
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{}{query}",
            self.namespace, self.service.name
        );
        let (authority, waited) = (self.authority.as_str(), self.config.timeout);
        let asked = async {
            let pipe = self.connect.dial(&self.outgoing, authority, waited).await?;
            Inquiry { authority, path: &path, token: token.as_ref() }.ask(pipe).await
        };
        let asked = timeout(waited, asked).await.map_err(|_| Trouble::Silent { waited })?;
        let hearing = asked.map_err(|error| Trouble::Unreachable {
            server: self.authority.clone(),
            reason: match self.secured {
                true => format!(
                    "{error} (trusted: the certificate authorities in {})",
                    authorities(&self.config).display()
                ),
                false => error.to_string(),
            },
        })?;
        match hearing.status() {
            200 => Ok(hearing),
            status => Err(self.refusal(hearing, status).await),
        }
    }

    /// Reads the current token, as it is replaced at run time. Without TLS it is not sent, because it would be
    /// readable.
    async fn token(&self) -> Result<Option<Token>, Trouble> {
        if !self.secured {
            return Ok(None);
        }
        let file = self.config.service_account.join("token");
        let read = tokio::task::spawn_blocking(move || read(&file)).await;
        let read = read.unwrap_or_else(|error| Err(error.to_string()));
        read.map(|text| Some(Token::new(text.trim()))).map_err(|reason| Trouble::Account { reason })
    }

    async fn refusal(&self, mut hearing: Hearing, status: u16) -> Trouble {
        let body = self.whole(&mut hearing, "a refusal", REFUSAL_BYTES).await.unwrap_or_default();
        let said: Rebuff = serde_json::from_slice(&body).unwrap_or_else(|_| Rebuff {
            message: String::from_utf8_lossy(&body).chars().take(200).collect(),
            code: None,
        });
        self.refused(status, said.message)
    }

    /// Interprets a status code of a response or of a line.
    pub(super) fn refused(&self, status: u16, message: String) -> Trouble {
        match status {
            401 => Trouble::Unauthenticated,
            403 => Trouble::Forbidden { namespace: self.namespace.clone(), message },
            _ => Trouble::Refused { status, message },
        }
    }

    async fn whole(
        &self,
        hearing: &mut Hearing,
        what: &'static str,
        limit: usize,
    ) -> Result<BytesMut, Trouble> {
        let waited = self.config.timeout;
        let mut body = BytesMut::new();
        loop {
            let chunk = timeout(waited, hearing.chunk()).await.map_err(|_| Trouble::Silent { waited })?;
            let Some(chunk) = chunk.map_err(severed)? else { return Ok(body) };
            if body.len() + chunk.len() > limit {
                return Err(Trouble::TooLong { what, limit });
            }
            body.extend_from_slice(&chunk);
        }
    }
}

impl Watch {
    /// The next line; `None` once the API server ended the watch as requested. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Trouble> {
        self.0.next().await.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => Trouble::TooLong { what: "a line", limit: LINE_BYTES },
            _ => severed(error),
        })
    }
}

/// File of the trusted certificate authorities.
fn authorities(config: &Config) -> PathBuf {
    config.service_account.join("ca.crt")
}

fn read(file: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot read {}: {error}", file.display());
    let mut text = String::new();
    let opened = fs::File::open(file).map_err(failed)?;
    opened.take(TOKEN_BYTES).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Percent-encodes a text of the server for use in the next request.
fn escape(path: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
}

fn severed(error: io::Error) -> Trouble {
    Trouble::Severed { reason: error.to_string() }
}

/// The API server of Kubernetes, for workers such as `kubernetes+http://SERVICE`.
///
/// The times are constants outside of tests: a watch reports changes within a second, whatever they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address of the API server: `https://HOST[:PORT]`, or `http://` for a proxy such as `kubectl proxy`. Tokens are sent
    /// over TLS only. Default: none, the address in the pod's environment.
    // Without KUBERNETES_SERVICE_HOST and ..._PORT it is `https://kubernetes.default.svc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Folder of the service account, with the files `token`, `ca.crt` and `namespace`. It is the same in all pods; elsewhere
    /// `server` is a `kubectl proxy`.
    // The token is read for every request, as Kubernetes replaces it from time to time.
    #[serde(skip)]
    pub service_account: PathBuf,
    /// Timeout for the start of an answer, and for silence within a list.
    #[serde(skip)]
    pub timeout: Duration,
    /// Longest watch, shortened by up to a tenth, by chance. The list that follows repairs what a watch lost, also over a silently
    /// broken connection. An endpoint is removed if a list and a second one, `backoff_min` later, both lack it.
    #[serde(skip)]
    pub watch: Duration,
    /// Backoff after the first failure; it doubles with every failure. Waits are shortened by up to a half, by chance.
    #[serde(skip)]
    pub backoff_min: Duration,
    /// Longest backoff.
    #[serde(skip)]
    pub backoff_max: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            server: None,
            service_account: "/var/run/secrets/kubernetes.io/serviceaccount".into(),
            timeout: Duration::from_secs(10),
            watch: Duration::from_secs(60),
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(30),
        }
    }
}

/// Why a Service cannot be followed, for now or at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Trouble {
    #[error("invalid frontend.kubernetes.server '{server}': use https://HOST:PORT")]
    BadServer { server: String },
    #[error(
        "{reason}: in a pod set automountServiceAccountToken: true, elsewhere name the address of a kubectl proxy with \
         frontend.kubernetes.server"
    )]
    Account { reason: String },
    #[error("cannot reach the API server {server}: {reason}")]
    Unreachable { server: String, reason: String },
    #[error("the API server timed out: no data for {waited:?}")]
    Silent { waited: Duration },
    #[error(
        "unauthenticated (401): the API server rejected the token: check that the service account exists and its token is fresh"
    )]
    Unauthenticated,
    #[error(
        "forbidden (403): bind a Role to the frontend's service account that may list and watch endpointslices of discovery.k8s.io in \
         namespace {namespace} (deploy/kubernetes/components/endpoint-slices has one); {message}"
    )]
    Forbidden { namespace: String, message: String },
    #[error("the API server returned status {status}: {message}")]
    Refused { status: u16, message: String },
    #[error(
        "response of the API server is too long: {what} has over {limit} bytes: check frontend.kubernetes.server"
    )]
    TooLong { what: &'static str, limit: usize },
    #[error("too many endpoints: more than {limit}: check that this is the Service of the workers")]
    TooMany { limit: usize },
    #[error("cannot read the response of the API server: {reason}")]
    Unreadable { reason: String },
    #[error("the connection to the API server broke: {reason}")]
    Severed { reason: String },
}

impl Trouble {
    pub(super) fn unreadable(error: serde_json::Error) -> Self {
        Self::Unreadable { reason: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_text_cannot_add_query_parameters() {
        let mut path = String::new();
        escape(&mut path, "a-1&watch=x y/é");
        assert_eq!(path, "a-1%26watch%3Dx%20y%2F%C3%A9");
    }
}
