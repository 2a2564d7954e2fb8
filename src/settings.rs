//! Reads the configuration in layers: defaults, the file, `PARM_SECTION__FIELD` variables, flags.
//!
//! All of it is read and checked before a port is bound. An error names the field and the source of its value.
//!
//! Variables count only if they name a section: a Kubernetes service called `parm` puts `PARM_PORT`, `PARM_SERVICE_HOST` and
//! others into every container of its namespace, and no process may fail for that. An unknown field of an existing section
//! remains an error.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, anyhow, bail};
use parm_durations::with_range;
use parm_frontend::discovery::kubernetes::Service;
use parm_parity_models::bundle::Manifest;
use parm_parity_models::repository::Repository;
use parm_protocol::StableCode;
use parm_settings::{PolicyKind, removed, was_removed};
use parm_transport::keys::KeyFile;
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_path_to_error::Segment;
use toml::{Table, Value};

use crate::cli::{Common, Hosting, Serve, StandInAt, Worker};
use crate::codes::coded;
use crate::logging;

/// The whole configuration of `parm serve` and `parm worker`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Logs and traces.
    pub log: logging::Config,
    /// Addresses for clients, and limits of their connections.
    pub server: parm_transport::server::Config,
    /// TLS of all listeners and of connections to workers. Unix sockets stay plain. Changed files apply to new connections;
    /// `server.max_connection_age_ms` ends the older ones.
    pub tls: parm_transport::tls::Config,
    /// The frontend: workers, requests, policies. Only `parm serve` uses it.
    pub frontend: parm_frontend::Config,
    /// Models, and the instances that run them in this process.
    pub backend: parm_backend::Config,
    /// Shares of the instances' time, by name.
    pub share: parm_shares::Settings,
    /// Whether the example in the binary is served, as nobody has named anything else.
    #[serde(skip)]
    pub serves_example: bool,
    /// Variables with the prefix that do not name a section, for the log.
    #[serde(skip)]
    pub ignored: Vec<String>,
}

/// Errors here are of the configuration: the process ends with status 64.
impl Settings {
    /// Reads the settings of `parm serve`.
    pub fn for_serve(flags: &Serve) -> anyhow::Result<Self> {
        let mut layers = layers(&flags.common, &flags.hosting)?;
        let workers = Some(&flags.worker).filter(|urls| !urls.is_empty());
        let upstreams = Some(&flags.upstream).filter(|urls| !urls.is_empty());
        flag(&mut layers, "frontend.workers", workers)?;
        flag(&mut layers, "frontend.upstreams.urls", upstreams)?;
        let repeatable = Some(&flags.repeatable).filter(|paths| !paths.is_empty());
        flag(&mut layers, "frontend.upstreams.repeatable", repeatable)?;
        flag(&mut layers, "frontend.bundles", flags.bundles.as_ref())?;
        flag(&mut layers, "frontend.dispatch.stand_in.model", flags.stand_in.as_ref())?;
        flag(&mut layers, "frontend.dispatch.policy", policy(flags)?)?;
        flag(&mut layers, "frontend.admin.address", flags.admin.as_ref())?;
        flag(&mut layers, "frontend.recording.file", flags.record.as_ref())?;
        flag(&mut layers, "frontend.capture.folder", flags.capture.as_ref())?;
        flag(&mut layers, "backend.models", flags.file.as_ref())?;
        let mut settings = extract(layers)?;
        settings.frontend.client.upstream = settings.frontend.upstreams.client()?;
        settings.check_forwarded()?;
        let settings = match flags.stand_in_at {
            Some(StandInAt::Frontend) => with_stand_ins_only(settings)?,
            Some(StandInAt::Workers) | None => settings,
        };
        let mut settings = if settings.embeds() { settings.with_models(false)? } else { settings };
        let is_service = |url: &String| Service::read(url).is_some();
        let named = settings.frontend.workers.iter().chain(&settings.frontend.upstreams.urls);
        if settings.frontend.kubernetes.server.is_none() && named.into_iter().any(is_service) {
            settings.frontend.kubernetes.server = crate::environment::kubernetes();
        }
        // A model repository also holds the bundles.
        if settings.frontend.bundles.is_none() {
            settings.frontend.bundles = settings.backend.models.clone();
        }
        settings.with_body_limit().with_shares(Reader::Frontend)
    }

    /// Reads the settings of `parm worker`.
    pub fn for_worker(flags: &Worker) -> anyhow::Result<Self> {
        let mut layers = layers(&flags.common, &flags.hosting)?;
        flag(&mut layers, "backend.faults", flags.faults.then_some(true))?;
        flag(&mut layers, "backend.chat.model", flags.emulate_chat.as_ref())?;
        extract(layers)?.with_models(true)?.with_body_limit().with_shares(Reader::Worker)
    }

    /// Checks before anything starts that the engine exists and that there are models.
    fn with_models(mut self, is_worker: bool) -> anyhow::Result<Self> {
        let backend = &mut self.backend;
        if let Some(folder) = &backend.models {
            // A folder without models is only reported: they may come later.
            Repository::open(folder)
                .map_err(|error| coded(StableCode::NoModels, format!("backend.models: {error}")))?;
        }
        parm_backend::engine::by_name(&backend.engine.name, &backend.engine).map_err(|error| {
            let field = match error {
                parm_backend::Error::RuntimeLibrary { .. } => "onnxruntime",
                parm_backend::Error::Device { .. } | parm_backend::Error::Card { .. } => "device",
                _ => "name",
            };
            anyhow::Error::from(error).context(format!("backend.engine.{field}"))
        })?;
        let chats = is_worker && backend.chat.model.is_some();
        if backend.models.is_none() && backend.emulated.is_empty() && !chats {
            let folder = Path::new("models");
            if folder.is_dir() {
                backend.models = Some(folder.to_owned());
            } else if is_worker {
                // A frontend expects its own models of a worker, so an example would only hide that they are missing.
                let problem =
                    "backend.models: no models to serve: name a model repository with --models FOLDER";
                return Err(coded(StableCode::NoModels, problem));
            } else {
                self.serves_example = true;
            }
        }
        Ok(self)
    }

    /// Rejects settings without effect if all requests are for upstream servers, whose bodies parm does not read.
    fn check_forwarded(&self) -> anyhow::Result<()> {
        let frontend = &self.frontend;
        let has_workers = !frontend.workers.is_empty() || frontend.workers_file.is_some();
        if frontend.upstreams.urls.is_empty() || has_workers || self.embeds() {
            return Ok(());
        }
        if frontend.capture.folder.is_some() {
            let problem = "requests for upstream servers are not captured, as parm does not read them";
            bail!(
                "frontend.capture.folder: {problem}: remove it, or name the servers with --worker if they serve the \
                 Open Inference Protocol"
            );
        }
        let own = frontend.models.iter().map(|(name, own)| (format!("models.{name}"), own));
        let mut pools = std::iter::once(("dispatch".to_owned(), &frontend.dispatch)).chain(own);
        let reads = |policy| matches!(policy, PolicyKind::Parm | PolicyKind::ParmPlus | PolicyKind::StandIn);
        match pools.find(|(_, pool)| reads(pool.policy)) {
            None => Ok(()),
            Some((section, _)) => bail!(
                "frontend.{section}.policy: policies parm, parm+ and stand-in need the rows of requests, and parm does not \
                 read those for upstream servers: use hedge, or name the servers with --worker if they serve the Open \
                 Inference Protocol"
            ),
        }
    }

    /// Applies the limit of request bodies to the workers' answers too.
    fn with_body_limit(mut self) -> Self {
        self.frontend.client.accept_bodies(self.server.max_body_bytes);
        self
    }

    /// Whether this process runs models itself, which is the default without workers and upstream servers.
    pub fn embeds(&self) -> bool {
        let frontend = &self.frontend;
        self.backend.models.is_some()
            || !self.backend.emulated.is_empty()
            || (frontend.workers.is_empty()
                && frontend.workers_file.is_none()
                && frontend.upstreams.urls.is_empty())
    }

    /// Returns the whole configuration as a file without its secrets.
    pub fn to_toml(&self) -> anyhow::Result<String> {
        let note = if self.has_secrets() { SECRETS } else { "" };
        Ok(format!("{note}{}", toml::to_string(self)?))
    }

    fn has_secrets(&self) -> bool {
        let Self { frontend, .. } = self;
        let keys = [&frontend.client.token, &frontend.admin.token];
        keys.into_iter().any(|key| key.is_some())
    }
}

const SECRETS: &str = "# Keys are secret and left out: fill in `token` under [frontend.client] \
                       and [frontend.admin].

";
/// The policy that `--stand-in` implies.
const STAND_IN: &str = "stand-in";
/// The source of the ranges in errors.
static SCHEMA: LazyLock<serde_json::Value> = LazyLock::new(|| schema_for!(Settings).to_value());
/// The prefix of variables.
const PREFIX: &str = "PARM_";

/// Whether a variable, without the prefix, names one of the sections.
fn names_section(name: &str) -> bool {
    let section = name.split_once("__").map(|(section, _)| section.to_ascii_lowercase());
    let known = ["log", "server", "tls", "frontend", "backend", "share"];
    section.is_some_and(|section| known.contains(&section.as_str()))
}

/// Leaves only the stand-ins to the instances of this process.
fn with_stand_ins_only(mut settings: Settings) -> anyhow::Result<Settings> {
    let refuse = |problem: &str| Err(anyhow!("--stand-in-at frontend: {problem}"));
    let frontend = &settings.frontend;
    if frontend.workers.is_empty() && frontend.workers_file.is_none() {
        return refuse("needs workers with the deployed model: name them with --worker URL");
    }
    if settings.backend.models.is_none() && settings.backend.emulated.is_empty() {
        return refuse("needs the stand-in's file: name its repository with --models FOLDER");
    }
    let named = frontend.dispatch.stand_in.model.clone();
    let folder = frontend.bundles.as_ref().or(settings.backend.models.as_ref());
    let names = match (named, folder) {
        (Some(name), _) => vec![name],
        (None, Some(folder)) => bundled(folder)?,
        (None, None) => Vec::new(),
    };
    if names.is_empty() {
        return refuse(
            "no bundle names a stand-in: make one with parm stand-in, or name a model with --stand-in",
        );
    }
    settings.backend.load = names;
    Ok(settings)
}

/// The cheapest stand-in of each bundle in a folder of models.
fn bundled(folder: &Path) -> Result<Vec<String>, parm_parity_models::Error> {
    let manifests = match std::fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path().join("parm.toml")).collect(),
        // A single bundle.
        Err(_) => vec![folder.to_owned()],
    };
    let mut names = BTreeSet::new();
    for path in manifests.into_iter().filter(|path| path.is_file()) {
        names.extend(Manifest::read(&path)?.cheapest().map(|stand_in| stand_in.model.name.clone()));
    }
    Ok(names.into_iter().collect())
}

/// Returns the policy that the flags name or imply. A stand-in that the policy does not use is rejected, because no later
/// message would show the mistake.
fn policy(flags: &Serve) -> anyhow::Result<Option<&str>> {
    let set = flags.common.set.iter().rev().find_map(|text| text.strip_prefix("frontend.dispatch.policy="));
    let set = set.map(|policy| policy.trim().trim_matches('"'));
    let named = flags.policy.as_deref().or(set);
    let at = flags.stand_in_at.filter(|at| *at == StandInAt::Frontend).map(|_| "at frontend".to_owned());
    match (flags.stand_in.as_ref().or(at.as_ref()), named) {
        (Some(model), Some(policy)) if policy != STAND_IN => {
            bail!(
                "--stand-in {model}: the policy '{policy}' does not use it: leave out the policy, or --stand-in"
            )
        }
        (Some(_), _) => Ok(Some(STAND_IN)),
        (None, _) => Ok(flags.policy.as_deref()),
    }
}

fn layers(flags: &Common, hosting: &Hosting) -> anyhow::Result<Layers> {
    let mut layers = Layers::new(&Settings::default())?;
    if let Some(path) = &flags.config {
        layers.merge(file(path)?, &format!("from {}", path.display()));
    }
    for (name, value) in crate::environment::with_prefix(PREFIX) {
        if names_section(&name) {
            let path = name.to_ascii_lowercase().replace("__", ".");
            layers.set(&path, written(&value), &format!("from {PREFIX}{name}"));
        }
    }
    if let Some(filter) = crate::environment::rust_log() {
        layers.set("log.level", filter.into(), "from RUST_LOG");
    }
    flag(&mut layers, "server.http", flags.http.as_ref())?;
    flag(&mut layers, "server.grpc", flags.grpc.as_ref())?;
    flag(&mut layers, "server.metrics", flags.metrics.as_ref())?;
    flag(&mut layers, "server.unix", flags.unix.as_ref())?;
    flag(&mut layers, "backend.models", hosting.models.as_ref())?;
    flag(&mut layers, "backend.instances", hosting.instances.as_ref())?;
    flag(&mut layers, "backend.engine.name", hosting.engine.as_ref())?;
    flag(&mut layers, "backend.engine.device", hosting.device.as_ref())?;
    flag(&mut layers, "log.format", flags.log_format.as_ref())?;
    for assignment in &flags.set {
        let (path, text) = assignment
            .split_once('=')
            .with_context(|| format!("--set {assignment}: write PATH=VALUE, such as backend.instances=4"))?;
        layers.set(path.trim(), written(text), FLAG);
    }
    Ok(layers)
}

/// The source of values of flags.
const FLAG: &str = "on the command line";

/// Sets a value that a flag has.
fn flag(layers: &mut Layers, path: &str, value: Option<impl Serialize>) -> anyhow::Result<()> {
    if let Some(value) = value {
        let value = toml::Value::try_from(value).map_err(|error| anyhow!("{path}: {error} ({FLAG})"))?;
        layers.set(path, value, FLAG);
    }
    Ok(())
}

/// Reads a configuration file. A pipe is not a file, and can be read.
fn file(path: &Path) -> anyhow::Result<toml::Table> {
    let fault = match path {
        path if path.is_dir() => Some("is a folder: name the file in it"),
        path if !path.exists() => Some("does not exist: check the path"),
        _ => None,
    };
    if let Some(fault) = fault {
        let message = format!("--config: file '{}' {fault}", path.display());
        return Err(coded(StableCode::ConfigurationMissing, message));
    }
    let from = |error: String| anyhow!("{} (from {})", error.trim_end(), path.display());
    let text = std::fs::read_to_string(path)
        .map_err(|error| from(format!("cannot read the configuration: {error}")))?;
    text.parse().map_err(|error: toml::de::Error| from(error.to_string()))
}

/// Settings outside of the models' that were removed, and why each is gone.
const REMOVED: &[(&str, &str)] = &[
    ("frontend.neighbours", "frontends tell each other nothing"),
    ("frontend.requests.retry_after_ms", "a second fits all clients"),
    ("frontend.instances.models_interval_ms", "models are checked every 5 s"),
    ("frontend.instances.limit", "4,096 instances are more than a frontend can check"),
    ("frontend.instances.health_failures", "an instance is gone after three silent checks"),
    ("frontend.instances.version_share", "a new version gets requests once half of the instances have it"),
    ("frontend.instances.drain_timeout_ms", "a removed instance has 30 s for its jobs"),
    ("frontend.client.connect_timeout_ms", "a second is enough to connect"),
    ("frontend.client.load_timeout_ms", "a server has five minutes to load a model, and loads on after that"),
    ("frontend.capture.max_age_s", "a week has every hour of the traffic"),
    ("frontend.capture.max_mb", "1 GiB is many times what a search for stand-ins reads"),
    ("frontend.kubernetes.service_account", "the folder is the same in all pods"),
    ("server.head_timeout_ms", "10 s are enough for a few kilobytes"),
    ("server.idle_timeout_ms", "five minutes are longer than load balancers keep a connection"),
    ("server.max_streams", "a connection has 1,024 streams"),
    ("server.frames", "a connection has 1,024 requests in progress and queues 128 MiB"),
    ("backend.weights", "only shares have weights: list the model in one"),
    ("backend.batched", "max_batch_size in the model's config.pbtxt says the same"),
    ("backend.unbatched", "max_batch_size = 0 in the model's config.pbtxt says the same"),
    ("backend.max_wait_ms", "a request has 60 s, or its own timeout"),
    ("backend.reload_ms", "the folder of models is looked at every 5 s"),
    ("backend.batching.max_delay_us", "waiting for a fuller batch gained nothing"),
    ("backend.tokens", "a worker that several frontends use always coordinates them"),
    ("backend.upstream", "frontends use other servers without a worker"),
    ("backend.chat.chunk", "an iteration reads 512 tokens"),
    ("backend.chat.stream_ms", "it is a 60th of backend.chat.iteration_ms"),
    ("backend.chat.prompt_token_ms", "it is a 180th of backend.chat.iteration_ms"),
    ("backend.chat.streams", "256 streams run at a time"),
    ("backend.chat.queue", "4,096 requests wait"),
    ("backend.chat.context", "a context has 262,144 tokens"),
];

/// The error about a setting that was removed; `None` for other settings.
fn gone(path: &str) -> Option<String> {
    let ours = REMOVED.iter().find(|(name, _)| *name == path).map(|(_, why)| was_removed(why));
    ours.or_else(|| path.starts_with("frontend.").then(|| removed(path))?)
}

fn extract(layers: Layers) -> anyhow::Result<Settings> {
    let others = crate::environment::with_prefix(PREFIX).into_iter().map(|(name, _)| name);
    let ignored = others.filter(|name| !names_section(name) && name != "CONFIG");
    let ignored = ignored.map(|name| format!("{PREFIX}{name}")).collect();
    let read: Result<Settings, Misfit> = layers.read();
    read.map(|settings| Settings { ignored, ..settings }).map_err(|Misfit { path, problem, source }| {
        let field = path.join(".");
        let problem = gone(&field).unwrap_or_else(|| with_range(problem, &SCHEMA, &path));
        let field = if field.is_empty() { field } else { format!("{field}: ") };
        anyhow!("{field}{problem}{source}")
    })
}

/// The layers of a configuration, of which later ones replace the values of earlier ones. Each layer names the source of its
/// values, so that an error about a value says where it was written.
pub struct Layers {
    table: Table,
    /// The path of each value that a layer set, in order, and its source.
    sources: Vec<(Vec<String>, String)>,
}

/// A value that does not fit its field.
#[derive(Debug)]
pub struct Misfit {
    /// The path of the field; empty for the whole configuration.
    pub path: Vec<String>,
    pub problem: String,
    /// The source of the value, in brackets, with a space before it; empty for a default.
    pub source: String,
}

impl Layers {
    /// The defaults.
    pub fn new(defaults: &impl Serialize) -> Result<Self, toml::ser::Error> {
        Ok(Self { table: Table::try_from(defaults)?, sources: Vec::new() })
    }

    /// Adds a layer.
    pub fn merge(&mut self, layer: Table, source: &str) {
        merge(&mut self.table, layer, &mut Vec::new(), &mut |path| {
            self.sources.push((path.to_vec(), source.to_owned()));
        });
    }

    /// Adds one value, at a path such as `backend.instances`.
    pub fn set(&mut self, path: &str, value: Value, source: &str) {
        let mut names = path.split('.').rev();
        let mut layer = Table::new();
        layer.extend(names.next().map(|name| (name.to_owned(), value)));
        for name in names {
            layer = Table::from_iter([(name.to_owned(), Value::Table(layer))]);
        }
        self.merge(layer, source);
    }

    /// Reads all of them into a type.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, Misfit> {
        let Self { table, sources } = self;
        serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
            let path: Vec<String> = error.path().iter().filter_map(name).collect();
            let is_part = |(set, _): &&(Vec<String>, String)| set.iter().zip(&path).all(|(a, b)| a == b);
            let source = sources.iter().rev().find(is_part).filter(|_| !path.is_empty());
            let source = source.map(|(_, source)| format!(" ({source})"));
            let problem = error.into_inner().message().to_owned();
            Misfit { path, problem, source: source.unwrap_or_default() }
        })
    }
}

/// A value as a person writes it: TOML, or else a text. So a word needs no quotes, which would be nested ones in a shell.
pub fn written(text: &str) -> Value {
    let table: Option<Table> = format!("value = {text}").parse().ok();
    let value = table.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
    // No setting is a date, but a name may look like one.
    value.filter(|value| !value.is_datetime()).unwrap_or_else(|| Value::String(text.to_owned()))
}

fn merge(into: &mut Table, layer: Table, path: &mut Vec<String>, set: &mut impl FnMut(&[String])) {
    for (name, value) in layer {
        path.push(name.clone());
        match (into.get_mut(&name), value) {
            (Some(Value::Table(into)), Value::Table(layer)) => merge(into, layer, path, set),
            (_, value) => {
                set(path);
                into.insert(name, value);
            }
        }
        path.pop();
    }
}

fn name(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { variant } => Some(variant.clone()),
        Segment::Unknown => None,
    }
}

/// The command that reads the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// `parm serve`, which reads the clients' keys.
    Frontend,
    /// `parm worker`, which receives the share with each job: only frontends read keys.
    Worker,
}

impl Settings {
    /// Checks the shares and copies them to the parts that use them.
    pub fn with_shares(mut self, reader: Reader) -> anyhow::Result<Self> {
        self.check_shares(reader).map_err(|error| anyhow!("share: {error:#}"))?;
        self.frontend.shares = self.share.clone();
        self.backend.shares = self.share.clone();
        Ok(self)
    }

    fn check_shares(&self, reader: Reader) -> anyhow::Result<()> {
        self.share.check()?;
        let names_keys = self.share.0.values().any(|share| !share.keys.is_empty());
        if reader == Reader::Frontend && names_keys {
            let known = self.server.keys_file.as_deref().map(names).transpose()?;
            self.share.check_keys(known.as_ref())?;
        }
        let inside = reader == Reader::Worker || self.embeds();
        let outside = !self.frontend.workers.is_empty() || self.frontend.workers_file.is_some();
        // Remote workers come and go, with their models.
        if inside && (reader == Reader::Worker || !outside) {
            self.share.check_instances(self.backend.instances.get())?;
            let known = self.known_models()?;
            self.share.check_models(|model| known.contains(model))?;
        }
        Ok(())
    }

    /// The models that this process can serve.
    fn known_models(&self) -> anyhow::Result<BTreeSet<String>> {
        let mut known: BTreeSet<String> = self.backend.emulated.keys().cloned().collect();
        for entry in self.backend.models.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten()
        {
            let entry = entry?;
            known.extend(entry.file_name().into_string().ok().filter(|_| entry.path().is_dir()));
        }
        Ok(known)
    }
}

/// The names of a file's keys. An invalid file is an error here too, because no client could be admitted.
fn names(file: &Path) -> anyhow::Result<BTreeSet<String>> {
    let keys = KeyFile::open(file)
        .map_err(|reason| anyhow!("cannot use the key file {}: {reason}", file.display()))?;
    Ok(keys.keys.into_iter().map(|key| key.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parm_transport::keys::{Digest, Entry, Role};
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Outer {
        name: String,
        inner: Inner,
        all: BTreeMap<String, Inner>,
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        count: u8,
        list: Vec<u8>,
    }

    /// Counts to seven by default, unlike an `Inner` elsewhere.
    fn layers() -> Layers {
        Layers::new(&Outer { inner: Inner { count: 7, list: vec![1] }, ..Outer::default() }).unwrap()
    }

    #[test]
    fn later_layers_replace_single_values() {
        let mut layers = layers();
        layers
            .merge("name = 'a'\n[inner]\nlist = [2, 3]\n[all.x]\ncount = 1".parse().unwrap(), "from a file");
        layers.set("all.x.count", written("2"), "flag");
        layers.set("name", written("b"), "flag");
        let read: Outer = layers.read().unwrap();
        assert_eq!((read.name.as_str(), &read.inner), ("b", &Inner { count: 7, list: vec![2, 3] }));
        assert_eq!(read.all["x"].count, 2);
    }

    #[test]
    fn misfit_names_its_path_and_the_last_source() {
        let misfit = |path: &str, text: &str| {
            let mut layers = layers();
            layers.merge("name = 'a'\n[inner]\ncount = 8".parse().unwrap(), "from f.toml");
            layers.set(path, written(text), "on the command line");
            layers.read::<Outer>().unwrap_err()
        };
        let wrong = misfit("inner.count", "many");
        assert_eq!(
            (wrong.path.join("."), wrong.source.as_str()),
            ("inner.count".into(), " (on the command line)")
        );
        assert!(wrong.problem.contains("\"many\""), "{}", wrong.problem);
        assert_eq!(misfit("inner.list", "[1, 'x']").path, ["inner", "list", "1"]);
        let unknown = misfit("all.x.cuont", "1");
        assert_eq!(
            (unknown.path.join("."), unknown.source.as_str()),
            ("all.x.cuont".into(), " (on the command line)")
        );
        assert!(unknown.problem.contains("`count`"), "{}", unknown.problem);
        let mut layers = layers();
        layers.merge("[inner]\ncount = 300".parse().unwrap(), "from f.toml");
        layers.set("name", written("b"), "on the command line");
        assert_eq!(layers.read::<Outer>().unwrap_err().source, " (from f.toml)");
    }

    #[test]
    fn words_lists_and_dates_are_read_as_written() {
        assert_eq!(written("4"), Value::Integer(4));
        assert_eq!(written("[1, 2]"), Value::Array(vec![Value::Integer(1), Value::Integer(2)]));
        for text in ["hedge", "127.0.0.1:8000", "2026-01-01", "1\nother = 2", ""] {
            assert_eq!(written(text), Value::String(text.into()));
        }
        assert_eq!(written("'4'"), Value::String("4".into()));
    }

    /// The error of a configuration, if it has one.
    fn told(text: &str, reader: Reader) -> Option<String> {
        let settings: Settings = toml::from_str(text).unwrap();
        settings.with_shares(reader).err().map(|error| error.to_string())
    }

    const MODELS: &str = "[backend]\ninstances = 2\n[backend.emulated.m]\n";

    #[test]
    fn share_with_unknown_model_or_too_many_instances_is_refused() {
        for reader in [Reader::Frontend, Reader::Worker] {
            let good = format!("[share.a]\nweight = 2\nreserved = 1\nmodels = [\"m\"]\n{MODELS}");
            assert_eq!(told(&good, reader), None);
            let unknown = told(&good.replace("[\"m\"]", "[\"n\"]"), reader).unwrap();
            assert!(unknown.contains("'n'") && unknown.contains("'a'"), "{unknown}");
            let many = told(&good.replace("reserved = 1", "reserved = 3"), reader).unwrap();
            assert!(many.contains("shares reserve 3 instances, but there are 2"), "{many}");
        }
        // Remote workers are not known yet.
        let elsewhere = "[share.a]\nmodels = [\"n\"]\nreserved = 9\n[frontend]\nworkers = [\"http://w:1\"]\n";
        assert_eq!(told(elsewhere, Reader::Frontend), None);
    }

    #[test]
    fn keys_must_be_in_the_key_file_which_only_frontends_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys.toml");
        let entry = Entry::new("search", Role::Infer, Digest::of(b"hush"));
        std::fs::write(&file, toml::to_string(&KeyFile { keys: vec![entry] }).unwrap()).unwrap();
        let with = |key: &str, server: &str| format!("[share.a]\nkeys = [\"{key}\"]\n{server}{MODELS}");
        let server = format!("[server]\nkeys_file = {file:?}\n");
        assert_eq!(told(&with("search", &server), Reader::Frontend), None);
        let unknown = told(&with("serch", &server), Reader::Frontend).unwrap();
        assert!(unknown.contains("'serch'"), "{unknown}");
        let open = told(&with("search", ""), Reader::Frontend).unwrap();
        assert!(open.contains("keys_file"), "{open}");
        assert_eq!(told(&with("serch", ""), Reader::Worker), None);
    }
}
