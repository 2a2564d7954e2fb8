//! Receives the reports of neighbours, and reconnects when a connection fails.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parm_transport::client::{Hearing, Inquiry, Lines, Token};
use parm_transport::tls::{Outgoing, Spoken};
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::neighbourhood::Needless;
use super::report::LoadReport;
use crate::config::Config;
use crate::discovery::{Connect, Name, authority};
use crate::error::Error;
use crate::serve::{Core, Driver};

/// Path of the report stream.
const PATH: &str = "/admin/v1/held";

/// Timeout after which a silent neighbour's report is dropped.
const SILENCE: Duration = Duration::from_millis(500);

/// First and longest pause between two tries; the pause doubles with each failure.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// Pause before retrying an address of this frontend itself or of a known neighbour, as it may change.
const NEEDLESS: Duration = Duration::from_secs(30);

/// Maximum bytes of a line: every server's address and a number.
const LONGEST_LINE: usize = 4 << 20;

/// Maximum bytes read of an error response.
const LONGEST_REFUSAL: usize = 16 << 10;

/// Maximum addresses of one name.
const MOST_NAMED: usize = 64;

/// Resources for reaching neighbours.
#[derive(Clone)]
struct Ways {
    core: Weak<Core>,
    connect: Arc<dyn Connect>,
    token: Option<Token>,
    patience: Duration,
}

/// One neighbour.
struct Neighbour {
    ways: Ways,
    authority: String,
    outgoing: Outgoing,
}

/// Follows the configured neighbours.
pub(crate) fn follow(core: &Arc<Core>, connect: &Arc<dyn Connect>) -> Result<(), Error> {
    let config = &core.config;
    let ways = Ways {
        core: Arc::downgrade(core),
        connect: connect.clone(),
        token: config.neighbours.token.clone(),
        patience: config.client.connect_timeout,
    };
    for url in &config.neighbours.urls {
        let bad = |reason| Error::BadNeighbour { url: url.clone(), reason };
        let name = Name::read(url).transpose().map_err(bad)?;
        // Check the scheme now rather than with the first answer.
        let first = name.as_ref().map_or_else(|| url.clone(), |name| name.url("host:1"));
        let neighbour = ways.to(config, &first).map_err(bad)?;
        let (ways, every) = (ways.clone(), config.instances.dns_interval);
        let following = async move {
            match name {
                Some(name) => ways.follow_name(name, every).await,
                None => neighbour.keep_listening().await,
            }
        };
        core.driver.lifelines.spawn(&Handle::current(), "neighbour discovery", following);
    }
    Ok(())
}

/// Requests the reports of a neighbour once, to learn whether it accepts the configured key.
pub async fn look(config: &Config, connect: &Arc<dyn Connect>, url: &str) -> Result<(), String> {
    let ways = Ways {
        core: Weak::new(),
        connect: connect.clone(),
        token: config.neighbours.token.clone(),
        patience: config.client.connect_timeout,
    };
    let lines = ways.to(config, url)?.ask().await;
    lines.map(drop).map_err(|error| error.to_string())
}

impl Ways {
    /// Prepares the connection to one neighbour.
    fn to(&self, config: &Config, url: &str) -> Result<Neighbour, String> {
        let (authority, secured) =
            authority(url).ok_or("use http://HOST:PORT, https://HOST:PORT or dns+http://HOST:PORT")?;
        let outgoing = config.client.tls.outgoing(&authority, secured, Spoken::Http1);
        let outgoing = outgoing.map_err(|error| error.to_string())?;
        Ok(Neighbour { ways: self.clone(), authority, outgoing })
    }

    /// Follows all addresses of a name. As with workers, an empty answer changes nothing.
    async fn follow_name(self, name: Name, every: Duration) {
        let mut listening: BTreeMap<String, AbortOnDropHandle<()>> = BTreeMap::new();
        let mut last = None;
        while let Some(core) = self.core.upgrade() {
            let answer = timeout(every, self.connect.resolve(&name)).await;
            let answer = answer.unwrap_or_else(|_| Err(format!("name resolution timed out after {every:?}")));
            match &answer {
                _ if last.as_ref() == Some(&answer) => {}
                Err(reason) => {
                    tracing::warn!(code = %parm_protocol::StableCode::NameUnresolved, %name, %reason, "cannot resolve the neighbours' name: keeping known neighbours")
                }
                Ok(found) if found.is_empty() => {}
                Ok(found) => {
                    let found: Vec<_> = found.iter().take(MOST_NAMED).map(|at| name.url(at)).collect();
                    listening.retain(|url, _| found.contains(url));
                    for url in found {
                        if let (false, Ok(neighbour)) =
                            (listening.contains_key(&url), self.to(&core.config, &url))
                        {
                            let task = tokio::spawn(neighbour.keep_listening());
                            listening.insert(url, AbortOnDropHandle::new(task));
                        }
                    }
                }
            }
            last = Some(answer);
            drop(core);
            sleep(every).await;
        }
    }
}

impl Neighbour {
    async fn keep_listening(self) {
        let [least, most] = PAUSES;
        let (mut pause, mut told) = (least, None);
        while let Some(core) = self.ways.core.upgrade() {
            let driver = core.driver.clone();
            drop(core);
            let mut heard = false;
            let wait = match self.listen(driver, &mut heard).await {
                Ok(Needless::Own | Needless::Twice) => NEEDLESS,
                Err(error) => {
                    let reason = error.to_string();
                    if heard || told.as_ref() != Some(&reason) {
                        let neighbour = &self.authority;
                        tracing::warn!(code = %parm_protocol::StableCode::NeighbourLost, %neighbour, %reason, "lost a neighbour: its jobs count as none until it returns");
                        told = Some(reason);
                    }
                    pause = if heard { least } else { pause };
                    let wait = pause;
                    pause = (2 * pause).min(most);
                    wait
                }
            };
            sleep(wait).await;
        }
    }

    /// Receives reports until an error, or until the connection proves needless.
    async fn listen(&self, driver: Arc<Driver>, heard: &mut bool) -> io::Result<Needless> {
        let mut lines = self.ask().await?;
        let first = next(&mut lines).await?;
        if let Err(needless) = driver.neighbours.known.lock().begins(&first.frontend) {
            return Ok(needless);
        }
        *heard = true;
        tracing::info!(neighbour = %self.authority, "connected to a neighbour");
        let listening = Listening { driver, name: first.frontend.clone() };
        listening.hear(&first, true);
        loop {
            let line = next(&mut lines).await?;
            if line.frontend != first.frontend {
                return Err(io::Error::other("another frontend answers at this address now"));
            }
            // The core is shutting down, so reports no longer matter.
            if self.ways.core.strong_count() == 0 {
                return Ok(Needless::Own);
            }
            listening.hear(&line, false);
        }
    }

    async fn ask(&self) -> io::Result<Lines> {
        let Ways { connect, token, patience, .. } = &self.ways;
        let asked = async {
            let pipe = connect.dial(&self.outgoing, &self.authority, *patience).await?;
            Inquiry { authority: &self.authority, path: PATH, token: token.as_ref() }.ask(pipe).await
        };
        let asked = timeout(*patience, asked).await;
        let hearing = asked.map_err(|_| {
            io::Error::new(io::ErrorKind::TimedOut, format!("connecting timed out after {patience:?}"))
        })??;
        if hearing.status() == 200 {
            return Ok(Lines::of(hearing, LONGEST_LINE));
        }
        let status = hearing.status();
        let said = match status {
            // The error of another kind of address would mislead.
            404 => String::new(),
            _ => timeout(*patience, said(hearing)).await.unwrap_or_default(),
        };
        let hint = match status {
            401 | 403 => "set frontend.neighbours.token to one of its keys that has the role read",
            404 => "check that this is the admin address of a frontend of the same version",
            _ => "",
        };
        Err(io::Error::other(
            [format!("rejected with status {status}"), said, hint.to_owned()]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join(": "),
        ))
    }
}

/// The message of an error response, which need not end with a line break.
async fn said(mut hearing: Hearing) -> String {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = hearing.chunk().await
        && body.len() < LONGEST_REFUSAL
    {
        body.extend_from_slice(&chunk);
    }
    serde_json::from_slice::<Refused>(&body).map(|refused| refused.error).unwrap_or_default()
}

/// Error response of the admin API.
#[derive(Deserialize)]
struct Refused {
    error: String,
}

/// An open connection to a neighbour. Dropping it removes the neighbour's report.
struct Listening {
    driver: Arc<Driver>,
    name: String,
}

impl Listening {
    fn hear(&self, line: &LoadReport, is_first: bool) {
        self.driver.neighbours.know(|known| known.heard(line, is_first), |event| self.driver.on(event));
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.driver.neighbours.know(|known| known.lost(&self.name), |event| self.driver.on(event));
    }
}

async fn next(lines: &mut Lines) -> io::Result<LoadReport> {
    let next = timeout(SILENCE, lines.next()).await;
    let next =
        next.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, format!("silent for {SILENCE:?}")))??;
    let line = next.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "it ended"))?;
    serde_json::from_slice(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
