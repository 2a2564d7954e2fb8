//! The API server: its settings, and the list of a Service's slices.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use parm_protocol::StableCode;
use parm_transport::client::{Inquiry, Token};
use parm_transport::tls::{self, Outgoing, Spoken, Tls};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use super::service::{Service, is_label};
use super::slices::List;
use crate::discovery::connect::{Connect, authority};
use crate::discovery::member::Source;
use crate::discovery::membership::{Listing, ServerList};
use crate::metrics::ServiceMetrics;

/// DNS address of the API server in every cluster.
const USUAL: &str = "https://kubernetes.default.svc";

/// Maximum bytes of a list: a slice usually has up to a hundred endpoints and 50 kB.
const LIST_BYTES: usize = 64 << 20;

/// Maximum bytes of a token.
const TOKEN_BYTES: u64 = 64 << 10;

/// Timeout of a list.
const PATIENCE: Duration = Duration::from_secs(10);

/// Interval between two lists.
pub(in crate::discovery) const EVERY: Duration = Duration::from_secs(2);

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

impl ApiServer {
    /// Reads the service account, except for the token. Makes no request.
    pub fn open(config: &Config, service: &Service, connect: Arc<dyn Connect>) -> Result<Self, String> {
        let server = config.server.as_deref().unwrap_or(USUAL);
        let (authority, secured) = authority(server)
            .ok_or_else(|| format!("invalid frontend.kubernetes.server '{server}': use https://HOST:PORT"))?;
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

    /// TLS towards the API server; the caller should follow the file of its certificate authorities.
    pub(in crate::discovery) fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Checks that following would work. Returns the addresses of all endpoints that are not terminating, and why some are
    /// unusable.
    pub async fn look(&self) -> Result<(Vec<String>, Option<String>), String> {
        let ServerList { servers, problem } = self.endpoints().await?;
        let urls = servers.into_iter().filter(|(_, found)| !found.terminating).map(|(url, _)| url);
        Ok((urls.collect(), problem))
    }

    /// Lists all endpoints.
    async fn endpoints(&self) -> Result<ServerList, String> {
        let body = timeout(PATIENCE, self.ask()).await;
        let body = body.unwrap_or_else(|_| Err(format!("the API server timed out after {PATIENCE:?}")))?;
        let list: List = serde_json::from_slice(&body)
            .map_err(|error| format!("cannot read the response of the API server: {error}"))?;
        Ok(list.endpoints(&self.service))
    }

    /// Requests the slices of the Service. The version 0 is the one that the API server has in its cache.
    async fn ask(&self) -> Result<BytesMut, String> {
        let token = self.token().await?;
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{}&resourceVersion=0",
            self.namespace, self.service.name
        );
        let authority = self.authority.as_str();
        let unreachable = |error: io::Error| {
            let trusted = match self.secured {
                true => format!(
                    " (trusted: the certificate authorities in {})",
                    authorities(&self.config).display()
                ),
                false => String::new(),
            };
            format!("cannot reach the API server {authority}: {error}{trusted}")
        };
        let pipe = self.connect.dial(&self.outgoing, authority, PATIENCE).await.map_err(unreachable)?;
        let inquiry = Inquiry { authority, path: &path, token: token.as_ref() };
        let mut hearing = inquiry.ask(pipe).await.map_err(unreachable)?;
        let mut body = BytesMut::new();
        while let Some(chunk) = hearing.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > LIST_BYTES {
                return Err(format!(
                    "response of the API server has over {LIST_BYTES} bytes: check frontend.kubernetes.server"
                ));
            }
            body.extend_from_slice(&chunk);
        }
        match hearing.status() {
            200 => Ok(body),
            status => Err(self.refusal(status, &body)),
        }
    }

    /// Reads the current token, as it is replaced at run time. Without TLS it is not sent, because it would be
    /// readable.
    async fn token(&self) -> Result<Option<Token>, String> {
        if !self.secured {
            return Ok(None);
        }
        let file = self.config.service_account.join("token");
        let read = tokio::task::spawn_blocking(move || read(&file)).await;
        let read = read.unwrap_or_else(|error| Err(error.to_string()));
        read.map(|text| Some(Token::new(text.trim()))).map_err(account)
    }

    /// Explains a status that is not 200.
    fn refusal(&self, status: u16, body: &[u8]) -> String {
        let said = serde_json::from_slice::<Value>(body).unwrap_or_default();
        let text = String::from_utf8_lossy(body);
        let message: String = said["message"].as_str().unwrap_or(&text).chars().take(200).collect();
        match status {
            401 => "unauthenticated (401): the API server rejected the token: check that the service account exists and its token is \
                    fresh"
                .to_owned(),
            403 => format!(
                "forbidden (403): bind a Role to the frontend's service account that may list endpointslices of discovery.k8s.io in \
                 namespace {} (deploy/kubernetes/components/endpoint-slices has one); {message}",
                self.namespace
            ),
            _ => format!("the API server returned status {status}: {message}"),
        }
    }
}

/// The endpoints of a Service, listed again and again.
pub(in crate::discovery) struct Endpoints {
    api: ApiServer,
    metrics: ServiceMetrics,
}

impl Endpoints {
    pub(in crate::discovery) fn new(api: ApiServer, metrics: ServiceMetrics) -> Self {
        Self { api, metrics }
    }
}

impl Listing for Endpoints {
    const SOURCE: Source = Source::Kubernetes;
    const CODE: StableCode = StableCode::ServiceNotFollowed;

    async fn list(&mut self) -> Result<ServerList, String> {
        let listed = self.api.endpoints().await;
        self.metrics.current.set(i64::from(listed.is_ok()));
        match &listed {
            Ok(listed) => self.metrics.endpoints.set(listed.servers.len() as i64),
            Err(_) => self.metrics.failures.inc(),
        }
        listed
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.api.service.fmt(to)
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

/// The error of an unusable service account.
fn account(reason: String) -> String {
    format!(
        "{reason}: in a pod set automountServiceAccountToken: true, elsewhere name the address of a \
         kubectl proxy with frontend.kubernetes.server"
    )
}

/// The API server of Kubernetes, for workers such as `kubernetes+http://SERVICE`.
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
}

impl Default for Config {
    fn default() -> Self {
        Self { server: None, service_account: "/var/run/secrets/kubernetes.io/serviceaccount".into() }
    }
}
