//! Hears what neighbours tell, and keeps at it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parm_transport::client::{Inquiry, Lines, Token};
use parm_transport::tls::{Outgoing, Spoken};
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::neighbourhood::Needless;
use super::tidings::Tidings;
use crate::discovery::{Connect, Name, authority};
use crate::error::Error;
use crate::serve::{Core, Driver};

/// Where a neighbour tells.
const PATH: &str = "/admin/v1/held";

/// Who says nothing for so long is not believed any more.
const SILENCE: Duration = Duration::from_millis(500);

/// Between two tries; doubles with every failure.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// An address that turned out to be our own, or another neighbour's, may be somebody's later.
const NEEDLESS: Duration = Duration::from_secs(30);

/// Longest line: every server's address and a number.
const LONGEST_LINE: usize = 4 << 20;

/// Longest refusal that is read.
const LONGEST_REFUSAL: usize = 16 << 10;

/// Neighbours that one name may stand for.
const MOST_NAMED: usize = 64;

/// How neighbours are reached.
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

/// Follows the neighbours that are configured.
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
        // What the scheme cannot be is better known now than with the first answer.
        let first = name.as_ref().map_or_else(|| url.clone(), |name| name.url("host:1"));
        let neighbour = ways.to(core, &first).map_err(bad)?;
        let (ways, every) = (ways.clone(), config.instances.dns_interval);
        let following = async move {
            match name {
                Some(name) => ways.follow_name(name, every).await,
                None => neighbour.keep_listening().await,
            }
        };
        core.driver.lifelines.spawn(&Handle::current(), "the look for neighbours", following);
    }
    Ok(())
}

impl Ways {
    /// The way to one.
    fn to(&self, core: &Core, url: &str) -> Result<Neighbour, String> {
        let (authority, secured) =
            authority(url).ok_or("write http://HOST:PORT, https://HOST:PORT or dns+http://HOST:PORT")?;
        let outgoing = core.config.client.tls.outgoing(&authority, secured, Spoken::Http1);
        let outgoing = outgoing.map_err(|error| error.to_string())?;
        Ok(Neighbour { ways: self.clone(), authority, outgoing })
    }

    /// Follows everybody whom a name stands for. As with workers an answer without anybody changes nothing.
    async fn follow_name(self, name: Name, every: Duration) {
        let mut listening: BTreeMap<String, AbortOnDropHandle<()>> = BTreeMap::new();
        let mut last = None;
        while let Some(core) = self.core.upgrade() {
            let answer = timeout(every, self.connect.resolve(&name)).await;
            let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {every:?}")));
            match &answer {
                _ if last.as_ref() == Some(&answer) => {}
                Err(reason) => {
                    tracing::warn!(%name, %reason, "cannot resolve the neighbours' name: nothing changes")
                }
                Ok(found) if found.is_empty() => {}
                Ok(found) => {
                    let found: Vec<_> = found.iter().take(MOST_NAMED).map(|at| name.url(at)).collect();
                    listening.retain(|url, _| found.contains(url));
                    for url in found {
                        if let (false, Ok(neighbour)) = (listening.contains_key(&url), self.to(&core, &url)) {
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
                        tracing::warn!(%neighbour, %reason, "a neighbour is not heard: what it holds counts as nothing");
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

    /// Listens until something is wrong, or it turns out that there is no need.
    async fn listen(&self, driver: Arc<Driver>, heard: &mut bool) -> io::Result<Needless> {
        let mut lines = self.ask().await?;
        let first = next(&mut lines).await?;
        if let Err(needless) = driver.neighbours.known.lock().begins(&first.frontend) {
            return Ok(needless);
        }
        *heard = true;
        tracing::info!(neighbour = %self.authority, "a neighbour is heard");
        let listening = Listening { driver, name: first.frontend.clone() };
        listening.hear(&first, true);
        loop {
            let line = next(&mut lines).await?;
            if line.frontend != first.frontend {
                return Err(io::Error::other("it is another frontend now"));
            }
            // What a frontend that is gone would make of it matters to nobody.
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
            io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {patience:?}"))
        })??;
        if hearing.status() == 200 {
            return Ok(Lines::of(hearing, LONGEST_LINE));
        }
        let status = hearing.status();
        let said = timeout(*patience, Lines::of(hearing, LONGEST_REFUSAL).next()).await;
        let said = said.ok().and_then(Result::ok).flatten().unwrap_or_default();
        let said = serde_json::from_slice::<Refused>(&said).map(|refused| refused.error).unwrap_or_default();
        let hint = match status {
            401 => "set frontend.neighbours.token to one of its keys that has the role read",
            404 => "is that the admin address of a frontend as new as this one?",
            _ => "",
        };
        Err(io::Error::other(format!("it refuses with status {status}: {said} {hint}").trim_end().to_owned()))
    }
}

/// What the admin API says when it refuses.
#[derive(Deserialize)]
struct Refused {
    error: String,
}

/// A neighbour that is being heard. Dropped, it holds nothing any more.
struct Listening {
    driver: Arc<Driver>,
    name: String,
}

impl Listening {
    fn hear(&self, line: &Tidings, is_first: bool) {
        self.driver.neighbours.know(|known| known.heard(line, is_first), |event| self.driver.on(event));
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.driver.neighbours.know(|known| known.lost(&self.name), |event| self.driver.on(event));
    }
}

async fn next(lines: &mut Lines) -> io::Result<Tidings> {
    let next = timeout(SILENCE, lines.next()).await;
    let next =
        next.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, format!("silent for {SILENCE:?}")))??;
    let line = next.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "it ended"))?;
    serde_json::from_slice(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
