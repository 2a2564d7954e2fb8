//! Members of the fleet, added and removed by the sources and the admin API.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use parm_protocol::client::Client;
use parm_protocol::{Code, Error as WireError, ModelIndex, Place};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::connect::Connect;
use super::dns::{Name, Resolved};
use super::file::{self, WorkersFile};
use super::kubernetes::{self, ApiServer, Endpoints, Service};
use super::member::{Member, MemberReading, MemberState, Source, View, Wish};
use super::membership::follow;
use super::supervisor::Supervisor;
use crate::error::Error;
use crate::serve::{Core, Instance, Pool, Reach};
use crate::upstreams;

/// Maximum bytes of an address: watchers receive all addresses in one line.
const LONGEST_URL: usize = 2000;

/// Timeout for a loaded or unloaded model to show in the instances' lists: twice the interval of these.
const LOAD_WAIT: Duration = Duration::from_secs(10);

/// All members.
pub struct Fleet {
    pub(super) core: Arc<Core>,
    pub(super) connect: Arc<dyn Connect>,
    runtime: Handle,
    members: Mutex<Members>,
    unreached: Recently,
    joining: Recently,
}

#[derive(Default)]
struct Members {
    by_number: BTreeMap<u32, Arc<Member>>,
    next: u32,
    embedded: u32,
}

/// Operation of a model repository.
#[derive(Clone, Copy)]
enum LoadOrder {
    Load,
    Unload,
}

impl Fleet {
    /// Adds the configured members and follows the configured file.
    pub(crate) fn start(core: Arc<Core>, connect: Arc<dyn Connect>) -> Result<Arc<Self>, Error> {
        let (runtime, members) = (Handle::current(), Mutex::default());
        let (unreached, joining) = (Recently::default(), Recently::default());
        let fleet = Arc::new(Self { core, connect, runtime, members, unreached, joining });
        let config = &fleet.core.config;
        fleet.core.reach.upstreams.fetch_or(!config.upstreams.urls.is_empty(), Ordering::Relaxed);
        fleet.note_kinds(&fleet.members.lock());
        for url in &config.workers {
            fleet.add_configured(url)?;
        }
        for url in &config.upstreams.urls {
            fleet.add_configured(&upstreams::address(url)).map_err(|error| error.with_url(url))?;
        }
        if let Some(path) = &config.workers_file {
            let (timers, bad_lines) = (fleet.core.driver.timers, fleet.core.metrics.bad_lines.clone());
            let file = WorkersFile::new(path.clone(), fleet.connect.clone(), timers, bad_lines);
            fleet.spawn("workers file polling", follow(Arc::downgrade(&fleet), file, file::EVERY));
        }
        Ok(fleet)
    }

    /// Adds a server of the configuration, or follows the name of several.
    fn add_configured(self: &Arc<Self>, url: &str) -> Result<(), Error> {
        match (Service::read(url), Name::read(url)) {
            (Some(service), _) => self.follow_service(url, service),
            (None, Some(name)) => self.follow(url, name),
            (None, None) => self.add(url, Source::Static, Place::default()).map(|_| ()),
        }
    }

    /// Follows a DNS name.
    fn follow(self: &Arc<Self>, url: &str, name: Result<Name, String>) -> Result<(), Error> {
        let bad = |reason| Error::BadUrl { url: url.to_owned(), reason };
        let name = name.map_err(bad)?;
        // Check the scheme now rather than with the first answer.
        self.connect.check(&name.url("host:1")).map_err(bad)?;
        let patience = self.core.config.instances.dns_interval;
        let resolved = Resolved { name, connect: self.connect.clone(), patience };
        self.spawn("DNS polling", follow(Arc::downgrade(self), resolved, patience));
        Ok(())
    }

    /// Follows a Service of Kubernetes.
    fn follow_service(self: &Arc<Self>, url: &str, service: Result<Service, String>) -> Result<(), Error> {
        let bad = |reason| Error::BadUrl { url: url.to_owned(), reason };
        let service = service.map_err(bad)?;
        self.connect.check(&service.url("host:1")).map_err(bad)?;
        let api = ApiServer::open(&self.core.config.kubernetes, &service, self.connect.clone())
            .map_err(|reason| Error::Service { url: url.to_owned(), reason })?;
        let tls = api.tls();
        let endpoints = Endpoints::new(api, self.core.metrics.service(&service.to_string()));
        let weak = Arc::downgrade(self);
        self.spawn("Kubernetes polling", async move {
            let ended = CancellationToken::new();
            let _ends = ended.clone().drop_guard();
            tokio::spawn(tls.follow(ended));
            follow(weak, endpoints, kubernetes::EVERY).await;
        });
        Ok(())
    }

    /// Spawns a task whose panic must end the frontend.
    fn spawn(&self, part: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.core.driver.lifelines.spawn(&self.runtime, part, task);
    }

    /// Whether every instance of this process has joined or has reported why it cannot.
    pub(crate) fn is_settled(&self) -> bool {
        let members = self.members.lock();
        let unsettled = |member: &Arc<Member>| {
            let view = member.view();
            view.state == MemberState::Connecting && view.problem.is_none()
        };
        !members.by_number.values().any(|member| member.source == Source::Embedded && unsettled(member))
    }

    /// Whether all members are connecting, and there are some: the models that they serve are unknown. Each request for a
    /// model that is not found asks this.
    pub(crate) fn is_unreached(&self) -> bool {
        let connects = |view: &View| view.instance.is_none() && view.state == MemberState::Connecting;
        self.unreached.or_now(|| {
            let members = self.members.lock();
            !members.by_number.is_empty() && members.by_number.values().all(|member| member.view_is(connects))
        })
    }

    /// Whether no member is connected, and some are connecting for the first time. Each removed member asks this repeatedly.
    pub(super) fn is_joining(&self) -> bool {
        let is_absent = |view: &View| view.instance.is_none();
        let is_new = |view: &View| view.state == MemberState::Connecting && view.problem.is_none();
        self.joining.or_now(|| {
            let members = self.members.lock();
            members.by_number.values().all(|member| member.view_is(is_absent))
                && members.by_number.values().any(|member| member.view_is(is_new))
        })
    }

    /// The address that an operator means: an upstream server's without the prefix, if the frontend has only such servers.
    pub(crate) fn as_typed(&self, url: &str) -> String {
        let Reach { upstreams, models } = &self.core.reach;
        let has_workers = models.load(Ordering::Relaxed) || self.core.config.workers_file.is_some();
        let is_complete = url.starts_with("frames") || upstreams::is_upstream(url);
        match has_workers || is_complete || !upstreams.load(Ordering::Relaxed) {
            true => url.to_owned(),
            false => upstreams::address(url),
        }
    }

    /// Adds a server by its address, with the place that its source states.
    pub(crate) fn add(
        self: &Arc<Self>,
        url: &str,
        source: Source,
        place: Place,
    ) -> Result<Arc<Member>, Error> {
        let bad = |reason| Error::BadUrl { url: url.to_owned(), reason };
        if url.len() > LONGEST_URL {
            let reason = format!("address is too long: {} bytes, at most {LONGEST_URL}", url.len());
            return Err(Error::BadUrl { url: url.chars().take(80).collect(), reason });
        }
        self.connect.check(url).map_err(bad)?;
        self.insert(url, source, place, None)
    }

    /// Adds an instance of this process.
    pub(crate) fn embed(
        self: &Arc<Self>,
        client: Arc<dyn Client>,
        node: Option<&str>,
    ) -> Result<Arc<Member>, Error> {
        let number = {
            let mut members = self.members.lock();
            members.embedded += 1;
            members.embedded - 1
        };
        let place = Place { node: node.map(str::to_owned), ..Place::default() };
        self.insert(&format!("embedded:{number}"), Source::Embedded, place, Some(client))
    }

    fn insert(
        self: &Arc<Self>,
        name: &str,
        source: Source,
        place: Place,
        embedded: Option<Arc<dyn Client>>,
    ) -> Result<Arc<Member>, Error> {
        let member = {
            let mut members = self.members.lock();
            if let Some(known) = members.by_number.values().find(|member| member.name == name) {
                return Err(Error::DuplicateInstance { url: name.to_owned(), id: known.number });
            }
            let limit = self.core.config.instances.limit.get();
            if members.by_number.len() >= limit as usize {
                return Err(Error::TooManyInstances { limit });
            }
            members.next += 1;
            let number = members.next;
            let member = Arc::new(Member::new(number, name.to_owned(), (source, place), embedded));
            member.locate(Place::default());
            members.by_number.insert(number, member.clone());
            self.note_kinds(&members);
            member
        };
        let supervisor = Supervisor {
            core: self.core.clone(),
            connect: self.connect.clone(),
            wish: member.wish.subscribe(),
            member: member.clone(),
            fleet: Arc::downgrade(self),
        };
        self.spawn("instance supervisor", supervisor.run());
        Ok(member)
    }

    /// All members, by number.
    pub(crate) fn members(&self) -> Vec<Arc<Member>> {
        self.members.lock().by_number.values().cloned().collect()
    }

    pub(crate) fn member(&self, number: u32) -> Result<Arc<Member>, Error> {
        self.members.lock().by_number.get(&number).cloned().ok_or(Error::UnknownInstance { id: number })
    }

    /// Drains a member and removes it.
    pub(crate) fn remove(&self, number: u32) -> Result<Arc<Member>, Error> {
        let mut members = self.members.lock();
        let member = members.by_number.get(&number).ok_or(Error::UnknownInstance { id: number })?.clone();
        if member.source == Source::Embedded {
            return Err(Error::Embedded { id: number });
        }
        members.by_number.remove(&number);
        self.note_kinds(&members);
        member.wishes(Wish::Remove);
        Ok(member)
    }

    /// Notes the kinds of the members. A source of workers counts as one even while it names none, and paths stay those of
    /// upstream servers while there are none.
    fn note_kinds(&self, members: &Members) {
        let Reach { upstreams, models } = &self.core.reach;
        let mut names = members.by_number.values().map(|member| &*member.name);
        let has_upstream = names.clone().any(upstreams::is_upstream);
        let has_other = names.any(|name| !upstreams::is_upstream(name));
        upstreams.fetch_or(has_upstream, Ordering::Relaxed);
        models.store(has_other || !self.core.config.workers.is_empty(), Ordering::Relaxed);
    }

    /// All members, and how the dispatcher finds those that are connected.
    pub(crate) fn readings(&self) -> Vec<MemberReading> {
        let members: Vec<_> = self.members().into_iter().map(|member| (member.view(), member)).collect();
        let known: Vec<_> = members.iter().filter_map(|(view, _)| Some(view.instance.as_ref()?.id)).collect();
        let readings = self.core.driver.instances(&known);
        let read = |id| readings.get(&id).copied();
        members.into_iter().map(|(view, member)| MemberReading::new(member, view, read)).collect()
    }

    /// Loads a model at every instance; returns once it is served.
    pub(crate) async fn load(&self, name: &str) -> Result<(), WireError> {
        let loaded = self.order(LoadOrder::Load, name).await?;
        let serves = |member: &Arc<Member>| {
            let pools = member.view().instance.map(|instance| instance.pools()).unwrap_or_default();
            pools.iter().any(|pool| pool.model.name == name)
        };
        if loaded.iter().any(serves) {
            return Ok(());
        }
        let reason = loaded.iter().find_map(|member| member.view().problem);
        let reason = reason.unwrap_or_else(|| format!("no instance served it within {LOAD_WAIT:?}"));
        let message = format!("model '{name}' was loaded but is not usable: {reason}");
        Err(WireError::Unavailable { message })
    }

    /// Unloads a model at every instance that has it; returns once it is not served.
    pub(crate) async fn unload(&self, name: &str) -> Result<(), WireError> {
        self.order(LoadOrder::Unload, name).await.map(drop)
    }

    /// Describes the instances of a pool again, after some have rejected jobs for its model, and waits until `latest`.
    pub(crate) async fn describe_again(&self, pool: &Pool, latest: Instant) {
        let serves = |instance: &Arc<Instance>| instance.pools().iter().any(|own| own.id == pool.id);
        let looks = self.members().into_iter().filter_map(|member| {
            let instance = member.view().instance.filter(serves)?;
            Some(async move { member.look_if_outdated(&instance).await })
        });
        // On a timeout the regular check describes them later.
        let _ = timeout_at(latest, join_all(looks)).await;
    }

    /// Models that instances know but none serves, with their reasons.
    pub(crate) fn absent(&self) -> Vec<ModelIndex> {
        let members = self.members();
        members.iter().filter_map(|member| Some(member.view().instance?.absent())).flatten().collect()
    }

    /// Sends the order to all instances and waits, up to a limit, until their models are described anew. Returns the
    /// instances that executed it.
    async fn order(&self, order: LoadOrder, name: &str) -> Result<Vec<Arc<Member>>, WireError> {
        let mut asked = JoinSet::new();
        for member in self.members() {
            let Some(instance) = member.view().instance else { continue };
            let name = name.to_owned();
            asked.spawn(async move {
                let answer = match order {
                    LoadOrder::Load => instance.client.load_model(&name).await,
                    LoadOrder::Unload => instance.client.unload_model(&name).await,
                };
                if answer.is_ok() {
                    if matches!(order, LoadOrder::Unload) {
                        instance.disowns(&name);
                    }
                    // On a timeout the regular check describes it later.
                    let _ = timeout(LOAD_WAIT, member.look_again()).await;
                } else {
                    member.refresh.notify_one();
                }
                answer.map(|()| member)
            });
        }
        if asked.is_empty() {
            return Err(WireError::NoInstance { model: name.to_owned() });
        }
        // A task that panicked counts as an unreachable instance.
        let lost = |_| Err(WireError::Unavailable { message: "an instance could not be reached".into() });
        let mut answers = Vec::new();
        while let Some(answer) = asked.join_next().await {
            answers.push(answer.unwrap_or_else(lost));
        }
        verdict(answers)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for member in self.members.get_mut().by_number.values() {
            member.wishes(Wish::Remove);
        }
    }
}

/// Combines the answers of several instances: the order succeeds if some executed it and the others do not know the
/// model. Returns the instances that executed it.
fn verdict(answers: Vec<Result<Arc<Member>, WireError>>) -> Result<Vec<Arc<Member>>, WireError> {
    let (mut done, mut elsewhere, mut failed) = (Vec::new(), None, None);
    for answer in answers {
        match answer {
            Ok(member) => done.push(member),
            Err(error) if matches!(error.code(), Code::NotFound | Code::Unimplemented) => {
                elsewhere = Some(error)
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match (failed, elsewhere) {
        (Some(error), _) => Err(error),
        (None, Some(error)) if done.is_empty() => Err(error),
        _ => Ok(done),
    }
}

/// How long a yes holds.
const HOLDS: Duration = Duration::from_millis(10);

/// Remembers for a moment that a condition held. A no is not remembered, because the next question may need a yes at once.
#[derive(Default)]
struct Recently(Mutex<Option<Instant>>);

impl Recently {
    /// Whether the condition held a moment ago or, by a look, holds now.
    fn or_now(&self, look: impl FnOnce() -> bool) -> bool {
        let mut last = self.0.lock();
        if last.is_some_and(|at| at.elapsed() < HOLDS) {
            return true;
        }
        let holds = look();
        *last = holds.then(Instant::now);
        holds
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn yes_holds_for_a_moment_and_a_no_does_not() {
        let (recently, looks) = (Recently::default(), Cell::new(0));
        let ask = |answer: bool| {
            recently.or_now(|| {
                looks.set(looks.get() + 1);
                answer
            })
        };
        assert_eq!([ask(false), ask(false), ask(true)], [false, false, true]);
        assert_eq!(looks.get(), 3);
        assert!(ask(false) && looks.get() == 3, "a second look so soon");
        tokio::time::advance(HOLDS).await;
        assert!(!ask(false));
    }
}
