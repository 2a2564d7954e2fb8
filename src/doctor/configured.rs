//! Checks a configuration: fields, ports, keys, TLS, engine, models, bundles and workers. Checks a model repository like the
//! configuration that only names it.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use futures::{StreamExt, stream};
use parm_backend::engine::{Device, by_name, choose, on_card};
use parm_backend::try_file;
use parm_frontend::discovery::kubernetes::{ApiServer, Service};
use parm_frontend::discovery::{Connect, Listed, Name, Wire};
use parm_frontend::{Frontend, upstreams};
use parm_parity_models::bundle;
use parm_parity_models::repository::Repository;
use parm_protocol::client::{CallContext, Client};
use parm_protocol::{Code, Error, InferRequest, ModelRef, Parameters, StableCode};
use parm_transport::keys::{KeyFile, Role};
use parm_transport::tls::Tls;

use super::Finding;
use crate::cli::{Cli, Command};
use crate::logging::without_panic_texts;
use crate::settings::Settings;

/// Before the scheme of an upstream server's address.
const UPSTREAM: &str = "upstream+";

pub(super) async fn look(path: &Path) -> Vec<Finding> {
    if path.is_dir() {
        return match read(&[Path::new("--models"), path]) {
            Ok(settings) => hosted(&settings),
            Err(error) => vec![Finding::fails(format!("models: {error:#}"), "name a model repository")],
        };
    }
    let config = [Path::new("--config"), path];
    let (mut settings, mut findings) = match read(&config) {
        Ok(settings) => {
            let finding = match Frontend::check(&settings.frontend) {
                Ok(()) => Finding::well(format!("configuration: {} is valid", path.display())),
                Err(error) => Finding::fails(
                    format!("configuration: {error}"),
                    "correct the setting; the frontend would not start",
                ),
            };
            (settings, vec![finding])
        }
        Err(error) => {
            let what = format!("configuration: {error:#}");
            let remedy = match path.is_file() {
                true => "correct the file; docs/configuration.md lists all settings",
                false => {
                    "name a configuration, a model repository, a recording, or a frontend's admin API: http://HOST:PORT"
                }
            };
            let failed = vec![Finding::fails(what, remedy)];
            // Flags name the models of many workers: the rest of their file is checked nevertheless.
            let flags = ["--set", "backend.emulated.unnamed={}"].map(Path::new);
            match read(&[config, flags].concat()) {
                Ok(settings) => (settings, failed),
                Err(_) => return failed,
            }
        }
    };
    findings.extend(ports(&settings));
    findings.push(keys(&settings));
    findings.extend(secrecy(&mut settings));
    findings.extend(hosted(&settings));
    findings.extend(workers_file(&mut settings));
    findings.extend(workers(&settings).await);
    findings
}

/// Checks the engine and the models of this process.
fn hosted(settings: &Settings) -> Vec<Finding> {
    let mut findings: Vec<Finding> = device(settings).into_iter().collect();
    findings.extend(engine(settings));
    findings.extend(models(settings));
    findings.extend(loads(settings));
    findings
}

/// Returns the settings that `parm serve` would have with these flags.
fn read(flags: &[&Path]) -> anyhow::Result<Settings> {
    let words = [Path::new("parm"), Path::new("serve")].into_iter().chain(flags.iter().copied());
    let Command::Serve(flags) = Cli::try_parse_from(words)?.command else {
        anyhow::bail!("internal error: the arguments do not parse as `parm serve`: please report it")
    };
    Settings::for_serve(&flags)
}

fn ports(settings: &Settings) -> Vec<Finding> {
    let server = &settings.server;
    let own = [
        ("server.http", server.http.0),
        ("server.grpc", server.grpc.0),
        ("server.metrics", server.metrics.0),
    ];
    let admin = settings.frontend.admin.address.map(|address| ("frontend.admin.address", address));
    let mut bound = Vec::new();
    let mut findings: Vec<Finding> =
        own.into_iter().chain(admin).map(|(name, address)| port(name, address, &mut bound)).collect();
    match settings.frontend.admin.address {
        Some(address) if !address.ip().is_loopback() && !asks_for_keys(settings) => {
            findings.push(Finding::fails(
                format!("keys: any client of {address} could change this frontend, so it would not start"),
                "set server.keys_file or frontend.admin.token, or listen on 127.0.0.1",
            ));
        }
        Some(_) => {}
        None => findings.push(Finding::worth(
            "admin API: off",
            "set --admin 127.0.0.1:8003 to see slow instances and change settings",
        )),
    }
    findings
}

fn asks_for_keys(settings: &Settings) -> bool {
    settings.server.keys_file.is_some() || settings.frontend.admin.token.is_some()
}

/// Checks the key file, or whether clients on other machines need no key.
fn keys(settings: &Settings) -> Finding {
    let Some(path) = &settings.server.keys_file else {
        let addresses = [settings.server.http.0, settings.server.grpc.0];
        let open = addresses.into_iter().find(|address| !address.ip().is_loopback());
        return match open {
            None => Finding::well("keys: none; only this machine can connect"),
            Some(address) => Finding::worth(
                format!("keys: none; any client of {address} may request predictions"),
                "make a key with parm keys new, and set server.keys_file",
            ),
        };
    };
    let shown = path.display();
    match KeyFile::open(path) {
        Ok(file) => {
            let of = |role| file.keys.iter().filter(|key| key.role == role).count();
            let counts = Role::ALL.map(|role| format!("{} {role}", of(role)));
            Finding::well(format!("keys: {} in {shown} ({})", file.keys.len(), counts.join(", ")))
        }
        Err(reason) => Finding::fails(
            format!("keys: {shown}: {reason}"),
            "correct the file; the frontend would not start",
        ),
    }
}

/// Checks TLS: its mode, its files and the certificate's expiry. Requests to workers then use the same files.
fn secrecy(settings: &mut Settings) -> Vec<Finding> {
    let tls = match Tls::open(&settings.tls) {
        Ok(tls) => tls,
        Err(error) => {
            return vec![Finding::fails(
                format!("tls: {error}"),
                "correct [tls] or its files; the frontend would not start",
            )];
        }
    };
    settings.frontend.client.tls = tls.clone();
    let Some(mode) = tls.mode() else {
        return vec![Finding::well("tls: off, connections are not encrypted")];
    };
    let well = Finding::well(format!("tls: mode {}, its files are valid", mode.name()));
    let faults = tls.faults();
    let faults = faults.iter().map(|fault| super::of_file(fault.code.name(), &fault.text, fault.fails));
    [well].into_iter().chain(faults).collect()
}

/// Checks an address next to those that are bound already: two settings with one port would each find it free.
fn port(
    name: &'static str,
    address: SocketAddr,
    bound: &mut Vec<(&'static str, u16, TcpListener)>,
) -> Finding {
    match TcpListener::bind(address) {
        Ok(listener) => {
            bound.push((name, address.port(), listener));
            Finding::well(format!("port: {name} {address} is free"))
        }
        Err(error) => match bound.iter().find(|(_, port, _)| *port == address.port()) {
            Some((other, ..)) => Finding::fails(
                format!("port: {name} {address}: {error}: {other} has this port"),
                "give each its own port; the frontend would not start",
            ),
            None => Finding::fails(
                format!("port: {name} {address}: {error}"),
                "end the process that listens there (ss -ltnp shows it), or choose another address",
            ),
        },
    }
}

/// Checks the models that this process runs itself, and the bundles that it reads.
fn models(settings: &Settings) -> Vec<Finding> {
    let (models, bundles) = (settings.backend.models.as_deref(), settings.frontend.bundles.as_deref());
    let mut findings = Vec::new();
    if settings.serves_example {
        findings.push(Finding::fails(
            "models: no models to serve but the binary's example",
            "name backend.models, frontend.workers or frontend.upstreams.urls, unless flags do",
        ));
    }
    if let Some(folder) = models.filter(|folder| folder.is_dir()) {
        findings.extend(repository(folder, bundles == models));
    }
    match bundles {
        Some(path) if !path.exists() => findings.push(Finding::fails(
            format!("bundles: {} does not exist", path.display()),
            "correct frontend.bundles; the frontend would have no bundles",
        )),
        Some(folder) if bundles != models && folder.is_dir() => findings.extend(repository(folder, true)),
        _ => {}
    }
    findings
}

fn repository(folder: &Path, has_bundles: bool) -> Vec<Finding> {
    let shown = folder.display();
    let scan = match Repository::open(folder).and_then(|repository| Ok((repository.scan()?, repository))) {
        Ok(scan) => scan,
        Err(error) => {
            return vec![Finding::fails(format!("models: {shown}: {error}"), "name a model repository")];
        }
    };
    let (scan, repository) = scan;
    let mut findings = vec![match repository.vacancy(&scan) {
        Some(cure) => Finding::fails("models: none", cure),
        None => Finding::well(format!("models: {} in {shown}", scan.models.len())),
    }];
    for (model, problem) in &scan.problems {
        let remedy = "put its file at NAME/VERSION/model.onnx";
        findings.push(Finding::fails(format!("models: {model}: {problem}"), remedy));
    }
    if let Some(cure) = repository.loose_files(&scan).filter(|_| !scan.models.is_empty()) {
        findings.push(Finding::worth(format!("models: {cure}"), "move or delete the file"));
    }
    for model in scan.models.values().filter(|model| has_bundles && model.bundle.is_some()) {
        let name = &model.name;
        findings.push(match bundle::verify(&repository, name) {
            Ok(report) if report.is_sound() => Finding::well(format!("bundle: {name} is valid")),
            Ok(_) => Finding::fails(
                format!("bundle: {name} does not fit"),
                format!("run parm models verify {name} --models {shown} for the reason, then train it again"),
            ),
            Err(error) => Finding::fails(format!("bundle: {name}: {error}"), "train it again"),
        });
    }
    findings
}

/// Checks the lines of the workers file, and adds its servers to the configured ones.
fn workers_file(settings: &mut Settings) -> Vec<Finding> {
    let Some(path) = &settings.frontend.workers_file else { return Vec::new() };
    let shown = path.display();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            let what = format!("workers file: {shown}: {error}");
            return vec![Finding::fails(what, "create it with one address a line, or correct the path")];
        }
    };
    let mut findings = Vec::new();
    let before = settings.frontend.workers.len();
    for (number, line) in (1..).zip(text.lines()) {
        match Listed::read(line) {
            None => {}
            Some(Ok(listed)) => settings.frontend.workers.push(listed.url),
            Some(Err(problem)) => findings.push(Finding::fails(
                format!("workers file: {shown}, line {number}: {problem}"),
                "correct the line; the frontend skips it",
            )),
        }
    }
    let found = settings.frontend.workers.len() - before;
    findings.push(match found {
        0 => Finding::fails(format!("workers file: {shown} names no server"), "add one address a line"),
        found => Finding::well(format!("workers file: {found} servers in {shown}")),
    });
    findings
}

/// Checks that the configured workers answer and serve models.
async fn workers(settings: &Settings) -> Vec<Finding> {
    let wire = Wire::new(settings.frontend.client.clone())
        .with_name_servers(settings.frontend.instances.name_servers.clone());
    let wire = Arc::new(wire);
    let (mut findings, mut urls) = (Vec::new(), Vec::new());
    let upstreams = settings.frontend.upstreams.urls.iter().map(|url| upstreams::address(url));
    for url in &settings.frontend.workers.iter().cloned().chain(upstreams).collect::<Vec<_>>() {
        if let Some(service) = Service::read(url) {
            let (said, found) = pods(settings, wire.clone(), url, service).await;
            findings.extend(said);
            urls.extend(found);
            continue;
        }
        match Name::read(url) {
            None => urls.push(url.clone()),
            Some(Err(problem)) => {
                findings.push(Finding::fails(format!("workers: {}: {problem}", written(url)), "correct it"))
            }
            Some(Ok(name)) => match within(wire.resolve(&name)).await {
                Ok(Ok(servers)) if !servers.is_empty() => {
                    findings.push(Finding::well(format!("workers: {url}: servers found: {}", servers.len())));
                    urls.extend(servers.iter().map(|server| name.url(server)));
                }
                Ok(Err(problem)) => findings.push(unresolved(url, &problem)),
                Ok(Ok(_)) => findings.push(unresolved(url, "the name has no servers")),
                Err(problem) => findings.push(unresolved(url, &problem.to_string())),
            },
        }
    }
    let has_key = settings.frontend.client.token.is_some();
    let wire = &wire;
    let offers = together(urls, |url| async move {
        let offered = offer(wire, &url, has_key).await;
        (url, offered)
    });
    for (url, offered) in offers.await {
        match offered {
            Err(error) => {
                findings.push(unusable(&url, &error));
            }
            Ok(0) => {
                findings
                    .push(Finding::fails(format!("worker {url}: it serves no models"), "load a model on it"));
            }
            Ok(models) => findings.push(match url.strip_prefix(UPSTREAM) {
                Some(server) => Finding::well(format!("server {server}: it answers")),
                None => Finding::well(format!("worker {url}: {}", counted(models))),
            }),
        }
    }
    findings
}

/// Returns an address as its operator wrote it.
fn written(url: &str) -> String {
    url.replacen(UPSTREAM, "", 1)
}

/// Checks that a Service of Kubernetes can be followed: the API server answers and permits it, and the Service has pods.
/// Returns their addresses as well.
async fn pods(
    settings: &Settings,
    connect: Arc<Wire>,
    url: &str,
    service: Result<Service, String>,
) -> (Vec<Finding>, Vec<String>) {
    let config = &settings.frontend.kubernetes;
    let wrong = |problem: String| {
        let remedy = "correct frontend.workers or [frontend.kubernetes], or the service account's rights";
        (vec![Finding::fails(format!("workers: {url}: {problem}"), remedy)], Vec::new())
    };
    let api = match service.map(|service| ApiServer::open(config, &service, connect)) {
        Ok(Ok(api)) => api,
        Ok(Err(problem)) | Err(problem) => return wrong(problem),
    };
    match api.look().await {
        Err(problem) => wrong(problem),
        Ok((found, Some(problem))) => {
            let remedy = "correct the port in frontend.workers, or the Service";
            (vec![Finding::fails(format!("workers: {url}: {problem}"), remedy)], found)
        }
        Ok((found, None)) if found.is_empty() => {
            let remedy = "check that the Service exists in that namespace and selects pods: kubectl get endpointslices";
            (vec![Finding::fails(format!("workers: {url}: the Service has no pods"), remedy)], found)
        }
        Ok((found, None)) => {
            let what = format!("workers: {url}: pods found: {}", found.len());
            (vec![Finding::well(what)], found)
        }
    }
}

/// The finding of a server that does not answer.
fn unusable(url: &str, error: &Error) -> Finding {
    if let Some(server) = url.strip_prefix(UPSTREAM) {
        return Finding::fails(
            format!("server {server}: {error}"),
            "start it, or correct frontend.upstreams.urls; the frontend starts without it and retries",
        );
    }
    let remedy = key_remedy(error.code())
        .unwrap_or("start it, or correct frontend.workers; the frontend starts without it and retries");
    Finding::fails(format!("worker {url}: {error}"), remedy)
}

fn unresolved(url: &str, problem: &str) -> Finding {
    Finding::fails(
        format!("workers: {url}: {problem}"),
        "correct the name, or frontend.instances.name_servers",
    )
}

fn counted(models: usize) -> String {
    if models == 1 { "1 model".into() } else { format!("{models} models") }
}

/// Counts the models that a worker serves now, and tries the key of requests for predictions if there is one.
async fn offer(wire: &Wire, url: &str, has_key: bool) -> Result<usize, Error> {
    let client = within(wire.connect(url)).await??;
    if !within(client.is_ready()).await?? {
        return Err(Error::Unavailable { message: "it reports that it is not ready".into() });
    }
    let index = within(client.repository_index()).await??;
    let ready: Vec<_> = index.into_iter().filter(|entry| entry.state == "READY").collect();
    if let Some(entry) = ready.first().filter(|_| has_key) {
        let version = Some(entry.version.clone()).filter(|version| !version.is_empty());
        let model = ModelRef { name: entry.name.clone(), version };
        if let Some(rejection) = rejection(&*client, model).await {
            return Err(rejection);
        }
    }
    Ok(ready.len())
}

const HOW: &str = "run `pip install onnxruntime` in this program's or the active Python environment, or name its library in \
                   backend.engine.onnxruntime, and set backend.engine.name to auto: most models run two to five times as fast";

fn engine(settings: &Settings) -> Option<Finding> {
    let options = &settings.backend.engine;
    settings.embeds().then(|| match choose(&options.name, options) {
        Err(error) => Finding::fails(format!("engine: {error}"), "set backend.engine.name"),
        Ok(chosen) if chosen.name == "ort" => Finding::well(format!("engine: {}", chosen.about)),
        Ok(chosen) => Finding::worth(format!("engine: {}", chosen.about), HOW),
    })
}

/// Checks that the engine loads and runs every model of the repository.
fn loads(settings: &Settings) -> Vec<Finding> {
    let options = &settings.backend.engine;
    let engine = by_name(&options.name, options);
    let (Some(folder), Ok(engine)) = (&settings.backend.models, engine) else { return Vec::new() };
    let Ok(scan) = Repository::open(folder).and_then(|repository| repository.scan()) else {
        return Vec::new();
    };
    let latest = scan.models.values().filter_map(|model| Some((&model.name, model.latest()?.1)));
    let broken = latest.filter_map(|(name, version)| {
        let tried = without_panic_texts(|| match settings.backend.warm_up_runs {
            0 => engine.load(&version.path, options).map(drop),
            _ => try_file(&*engine, &version.path, &settings.backend),
        });
        let (error, code) = (tried.err()?, StableCode::ModelNotLoaded);
        let remedy = "correct the file, or choose another engine; it would not be served";
        Some(Finding::fails(format!("model {name}: {error} [{code}]"), remedy))
    });
    broken.collect()
}

/// Checks that ONNX Runtime for cards is there, if the configured device is one. Whether the card and all libraries of CUDA are
/// shows when a model is loaded.
fn device(settings: &Settings) -> Option<Finding> {
    let options = &settings.backend.engine;
    let found = settings.embeds().then(|| on_card(options)).flatten()?;
    let device = &options.device;
    Some(match found {
        Ok(runtime) => Finding::well(format!("device {device}: ONNX Runtime {}", runtime.display())),
        Err(error) => {
            let (what, cure) = (format!("device {device}"), error.to_string());
            let or_cpu = Device::read(device).is_some_and(|device| device.or_cpu);
            if or_cpu { Finding::worth(what, cure) } else { Finding::fails(what, cure) }
        }
    })
}

/// Timeout of a request to a server.
const PATIENCE: Duration = Duration::from_secs(5);

/// Servers that are asked at a time.
const AT_ONCE: usize = 64;

async fn within<T>(asked: impl Future<Output = T>) -> Result<T, Error> {
    let late = |_| Error::Unavailable { message: format!("no answer within {PATIENCE:?}") };
    tokio::time::timeout(PATIENCE, asked).await.map_err(late)
}

/// Asks all servers and returns their answers in the same order. Together, because each server that does not answer takes the
/// whole timeout.
async fn together<T, A: Future>(servers: Vec<T>, ask: impl FnMut(T) -> A) -> Vec<A::Output> {
    stream::iter(servers).map(ask).buffered(AT_ONCE).collect().await
}

/// The remedy of a worker that does not accept the frontend's key, if that is the fault.
fn key_remedy(code: Code) -> Option<&'static str> {
    matches!(code, Code::Unauthenticated | Code::PermissionDenied)
        .then_some("set frontend.client.token to one of its keys that has the role infer")
}

/// Requests a prediction without inputs, which each server rejects, and returns the rejection of the key.
async fn rejection(client: &dyn Client, model: ModelRef) -> Option<Error> {
    let request = InferRequest {
        model,
        id: String::new(),
        parameters: Parameters::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    let answer = within(client.infer(request, CallContext::default())).await.ok()?;
    answer.err().filter(|error| key_remedy(error.code()).is_some())
}
