//! Upstream servers, and the routes by which their requests are told apart.
//!
//! A route is to an upstream server what a model is to a worker: its requests have their own service times, settings and
//! metrics. Reading order: `routes.toml` lists those of known model servers, `config` the operator's.

mod config;
mod pattern;
mod pauses;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use parm_protocol::RestOfBody;
use parm_settings::Fraction;
use parm_transport::client::UpstreamConfig;

use self::config::MINUTE;
pub use self::config::{Config, RouteConfig};
use self::pattern::{Pattern, named_model};
use self::pauses::{Paced, Pauses};
use crate::error::Error;

/// Routes of known model servers.
const KNOWN: &str = include_str!("routes.toml");

/// Requests that only read.
const READ: &str = "read";

/// All requests without another route. They are sent once.
const OTHER: &str = "other";

/// All gRPC calls without another route. They are sent once.
const OTHER_CALLS: &str = "grpc-other";

/// Most routes of an operator.
const MOST: usize = 256;

/// All routes, the operator's first.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    rows: Vec<Arc<Route>>,
    read: Arc<Route>,
    other: Arc<Route>,
    other_calls: Arc<Route>,
    /// Paths of requests that were sent once, as the log has said.
    told: Arc<Mutex<BTreeSet<String>>>,
}

/// Most paths of which the log says that their requests are sent once.
const TOLD: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) name: String,
    /// `None`: any.
    method: Option<Method>,
    paths: Vec<RoutePath>,
    /// Whether its requests are gRPC calls.
    pub(crate) grpc: bool,
    /// Whether a server may run a request twice.
    pub(crate) repeatable: bool,
    /// Largest share of requests that is sent twice, unless the route has settings of its own.
    pub(crate) copies: Option<Fraction>,
    /// Timeout until an answer begins.
    pub(crate) deadline: Duration,
    /// Longest pause in the middle of an answer.
    pub(crate) stall: Duration,
    /// The pauses of its answers, unless its requests are of all kinds.
    pauses: Option<Arc<Pauses>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RoutePath {
    pattern: Pattern,
    /// The only model whose requests are of the route.
    model: Option<String>,
}

/// The part of a path before the name of a model.
const MODEL: &str = "?model=";

impl Config {
    /// The settings for clients of these servers, or the error in them.
    pub fn client(&self) -> Result<UpstreamConfig, Error> {
        let routes = Routes::new(self).map_err(wrong)?;
        // A server may have one port for HTTP and another for gRPC, which answers no other request then.
        let calls_only = self.urls.iter().any(|url| !is_over_http2(&address(url)));
        let over_http2 = routes.names(|route| route.grpc || !calls_only);
        Ok(UpstreamConfig {
            routes: routes.names(|route| !route.grpc),
            over_http2,
            probe: (&*self.probe).into(),
        })
    }
}

/// The error in these settings.
pub(crate) fn wrong(reason: String) -> Error {
    Error::BadSettings { reason: format!("frontend.upstreams{reason}") }
}

impl Routes {
    /// The operator's routes and those of known servers; the error says which is wrong.
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        if config.routes.len() > MOST {
            return Err(format!(
                ".routes: {} are too many, at most {MOST} are possible",
                config.routes.len()
            ));
        }
        if !config.probe.starts_with('/') || config.probe.contains(char::is_whitespace) {
            return Err(format!(".probe: '{}' is not a path such as /health", config.probe));
        }
        let known: BTreeMap<String, RouteConfig> =
            toml::from_str(KNOWN).map_err(|error| error.to_string())?;
        let known = known.iter().map(Route::read).collect::<Result<Vec<_>, _>>()?;
        let mut rows = config.routes.iter().map(Route::read).collect::<Result<Vec<_>, _>>()?;
        rows.iter_mut().for_each(|route| route.inherit(&known));
        rows.extend(known.into_iter().filter(|route| !config.routes.contains_key(&route.name)));
        for path in &config.repeatable {
            let route = Route::repeatable(path).map_err(|problem| format!(".repeatable: {problem}"))?;
            let name = &route.name;
            if is_reserved(name) || rows.iter().any(|known| known.name == *name) {
                return Err(format!(".repeatable: '{path}' would be a second route '{name}': use .routes"));
            }
            rows.push(route);
        }
        let default = |name: &str, repeatable, grpc| {
            Arc::new(Route { grpc, ..Route::plain(name.to_owned(), repeatable) })
        };
        Ok(Self {
            rows: rows.into_iter().map(Arc::new).collect(),
            read: default(READ, true, false),
            other: default(OTHER, false, false),
            other_calls: default(OTHER_CALLS, false, true),
            told: Arc::default(),
        })
    }

    /// The route of a request, which may be a gRPC call. Routes of its model go first; the body is read only for them.
    pub(crate) fn find(&self, method: &Method, path: &str, body: &[u8], is_call: bool) -> &Arc<Route> {
        let named = OnceCell::new();
        let is_named = |model: &str| named.get_or_init(|| named_model(body)).as_deref() == Some(model);
        let is_of_model = |own: &RoutePath| {
            own.model.as_deref().is_some_and(|model| own.pattern.fits(path) && is_named(model))
        };
        let is_of_any = |own: &RoutePath| own.model.is_none() && own.pattern.fits(path);
        let is_of_kind = |route: &&Arc<Route>| {
            route.grpc == is_call && route.method.as_ref().is_none_or(|own| own == method)
        };
        let mut rows = self.rows.iter().filter(is_of_kind);
        let of_model = rows.clone().find(|route| route.paths.iter().any(is_of_model));
        match of_model.or_else(|| rows.find(|route| route.paths.iter().any(is_of_any))) {
            Some(route) => route,
            None if is_call => &self.other_calls,
            None if method.is_safe() => &self.read,
            None => &self.other,
        }
    }

    /// Tells the operator, for the first paths, that requests without a route are sent once, and how to change that.
    pub(crate) fn tell_once(&self, route: &Arc<Route>, method: &Method, path: &str) {
        let remedy = match () {
            () if Arc::ptr_eq(route, &self.other) => format!("--repeatable '{path}'"),
            () if Arc::ptr_eq(route, &self.other_calls) => "a route in frontend.upstreams.routes".into(),
            () => return,
        };
        let mut told = self.told.lock();
        if told.len() < TOLD && told.insert(path.to_owned()) {
            tracing::warn!(
                %method, %path,
                "requests of this path are sent once, so those at a server that hangs or dies fail: if a server may run one \
                 twice, add {remedy}"
            );
        }
    }

    fn names(&self, wanted: impl Fn(&Route) -> bool) -> Arc<[String]> {
        self.all().filter(|route| wanted(route)).map(|route| route.name.clone()).collect()
    }

    /// Whether a route's requests must be sent once.
    pub(crate) fn is_once(&self, name: &str) -> bool {
        self.all().any(|route| route.name == name && !route.repeatable)
    }

    /// Largest share of a route's requests that is sent twice, if it has one of its own.
    pub(crate) fn copies(&self, name: &str) -> Option<Fraction> {
        self.all().find(|route| route.name == name).and_then(|route| route.copies)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.rows.iter().chain([&self.read, &self.other, &self.other_calls])
    }
}

impl Route {
    fn plain(name: String, repeatable: bool) -> Self {
        let (deadline, stall) = (MINUTE, MINUTE);
        let (method, paths) = (None, Vec::new());
        Self { name, method, paths, grpc: false, repeatable, copies: None, deadline, stall, pauses: None }
    }

    /// Longest pause of an answer that begins now.
    pub(crate) fn patience(&self) -> Duration {
        self.pauses.as_ref().map_or(self.stall, |pauses| pauses.patience(self.stall))
    }

    /// The rest of an answer, from whose pauses the route learns.
    pub(crate) fn paced(&self, rest: RestOfBody) -> RestOfBody {
        match &self.pauses {
            Some(pauses) => Box::pin(Paced::new(rest, pauses.clone())),
            None => rest,
        }
    }

    fn read((name, config): (&String, &RouteConfig)) -> Result<Self, String> {
        let RouteConfig { paths, method, grpc, repeatable, copies, deadline, stall } = config;
        let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
        let of = |problem: String| format!(".routes.{name}{problem}");
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(of(": write a name of letters, digits, '-', '_' and '.', at most 64".into()));
        }
        if is_reserved(name) {
            return Err(of(": requests without a route have this name: choose another".into()));
        }
        let known = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        let found = known.into_iter().find(|known| known.as_str() == method);
        let method =
            found.ok_or_else(|| of(format!(".method: '{method}' is none of HTTP's methods in capitals")))?;
        let read = |path: &String| RoutePath::read(path).map_err(|problem| of(format!(".paths: {problem}")));
        let paths = paths.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if *grpc && paths.iter().any(|path| path.model.is_some()) {
            return Err(of(format!(".paths: a gRPC call has no JSON body: remove {MODEL}")));
        }
        Ok(Self {
            name: name.clone(),
            method: Some(method),
            paths,
            grpc: *grpc,
            repeatable: *repeatable,
            copies: *copies,
            deadline: *deadline,
            stall: *stall,
            pauses: Some(Arc::default()),
        })
    }

    /// A route of requests that may be repeated. Its name is made of the words of its path.
    fn repeatable(path: &str) -> Result<Self, String> {
        let paths = vec![RoutePath::read(path)?];
        let words = path.split(|char: char| !char.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let name = Some(words.collect::<Vec<_>>().join("-")).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| "all".into());
        Ok(Self { paths, pauses: Some(Arc::default()), ..Self::plain(name, true) })
    }

    /// Takes the share of copies from the known route of the same path, if it is a route of a model without its own.
    fn inherit(&mut self, known: &[Self]) {
        let Some(path) = self.paths.iter().find(|path| path.model.is_some()) else { return };
        let is_same = |route: &&Self| route.paths.iter().any(|own| own.pattern == path.pattern);
        self.copies = self.copies.or_else(|| known.iter().find(is_same)?.copies);
    }
}

/// Whether requests without a route have this name.
fn is_reserved(name: &str) -> bool {
    matches!(name, READ | OTHER | OTHER_CALLS)
}

impl RoutePath {
    fn read(text: &str) -> Result<Self, String> {
        let (path, model) = match text.split_once(MODEL) {
            Some((_, "")) => return Err(format!("path '{text}' names no model after {MODEL}")),
            Some((path, model)) => (path, Some(model.to_owned())),
            None => (text, None),
        };
        Ok(Self { pattern: Pattern::read(path)?, model })
    }
}

/// The address of an upstream server as the fleet knows it: `upstream+` before its scheme.
pub fn address(url: &str) -> String {
    for source in ["dns+", "srv+", "kubernetes+"] {
        if let Some(rest) = url.strip_prefix(source) {
            return format!("{source}upstream+{rest}");
        }
    }
    format!("upstream+{url}")
}

/// Whether an [`address`] is that of a server that is reached over HTTP/2.
fn is_over_http2(address: &str) -> bool {
    address.contains("upstream+grpc")
}

/// Whether a member of the fleet is an upstream server.
pub(crate) fn is_upstream(address: &str) -> bool {
    address.starts_with("upstream+")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(text: &str) -> Result<Routes, String> {
        Routes::new(&toml::from_str(text).unwrap())
    }

    #[test]
    fn requests_of_known_servers_have_routes() {
        let routes = routes("").unwrap();
        let name = |method: Method, path| routes.find(&method, path, b"", false).name.clone();
        for (path, expected) in [
            ("/v1/chat/completions", "chat"),
            ("/v1/embeddings", "embeddings"),
            ("/embed", "embeddings"),
            ("/v1/models/half_plus_two:predict", "predict"),
            ("/predictions/densenet", "predict"),
            ("/invocations", "predict"),
            ("/v2/models/m/infer", "infer"),
            ("/v2/models/m/generate_stream", "generate"),
            ("/v1/responses", "other"),
            ("/v1/files", "other"),
        ] {
            assert_eq!(name(Method::POST, path), expected, "{path}");
        }
        assert_eq!(name(Method::GET, "/v1/models"), "read");
        assert_eq!(name(Method::OPTIONS, "/v1/chat/completions"), "read");
        assert_eq!(name(Method::DELETE, "/v1/chat/completions"), "other");
        assert!(routes.is_once("other") && !routes.is_once("chat") && !routes.is_once("unknown"));
    }

    #[test]
    fn calls_of_known_services_have_routes_of_their_own() {
        let text = "[routes.mine]\ngrpc = true\npaths = ['/my.Service/{method}']";
        let routes = routes(text).unwrap();
        for (path, expected) in [
            ("/inference.GRPCInferenceService/ModelInfer", "grpc-infer"),
            ("/inference.GRPCInferenceService/ModelStreamInfer", "grpc-stream"),
            ("/tensorflow.serving.PredictionService/MultiInference", "grpc-predict"),
            ("/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions", "grpc-predict"),
            ("/inference.GRPCInferenceService/RepositoryModelLoad", "grpc-other"),
            ("/my.Service/Ask", "mine"),
            ("/v1/chat/completions", "grpc-other"),
        ] {
            assert_eq!(routes.find(&Method::POST, path, b"", true).name, expected, "{path}");
            assert_ne!(routes.find(&Method::POST, path, b"", false).name, expected, "{path} without gRPC");
        }
        assert!(routes.is_once("grpc-other") && !routes.is_once("grpc-infer"));
    }

    #[test]
    fn server_of_grpc_gets_only_calls_next_to_servers_of_http() {
        let client = |urls: &[&str]| {
            let urls = urls.iter().map(|url| (*url).to_owned()).collect();
            Config { urls, ..Config::default() }.client().unwrap()
        };
        let has = |names: &[String], name: &str| names.iter().any(|own| own == name);
        let alone = client(&["grpc://a:1", "dns+grpcs://b:1"]);
        assert!(has(&alone.over_http2, "grpc-infer") && has(&alone.over_http2, "chat"));
        let mixed = client(&["grpc://a:1", "http://a:2"]);
        assert!(has(&mixed.over_http2, "grpc-other") && !has(&mixed.over_http2, "other"));
        assert!(has(&mixed.routes, "other") && !has(&mixed.routes, "grpc-other"));
    }

    #[test]
    fn route_of_the_operator_replaces_a_known_one() {
        let text = "[routes.chat]\npaths = ['/ask/{who}']\nrepeatable = false\ndeadline_ms = 5";
        let routes = routes(text).unwrap();
        let own = routes.find(&Method::POST, "/ask/me", b"", false);
        assert_eq!((&*own.name, own.repeatable, own.deadline), ("chat", false, Duration::from_millis(5)));
        assert_eq!(routes.find(&Method::POST, "/v1/chat/completions", b"", false).name, "other");
    }

    #[test]
    fn request_of_a_model_has_the_route_of_its_model() {
        let text = "
            [routes.all]
            paths = ['/v1/completions']
            [routes.big]
            paths = ['/v1/chat/completions?model=org/big', '/v1/completions?model=org/big']
            [routes.small]
            paths = ['/v1/chat/completions?model=small']
            copies = 0.5
            [routes.vectors]
            paths = ['/v1/embeddings?model=e']";
        let routes = routes(text).unwrap();
        let name = |path: &str, model: &str| {
            let body = format!(r#"{{"messages": [], "model": "{model}"}}"#);
            routes.find(&Method::POST, path, body.as_bytes(), false).name.clone()
        };
        for (path, model, expected) in [
            ("/v1/chat/completions", "org/big", "big"),
            ("/v1/completions", "org/big", "big"),
            ("/v1/completions", "small", "all"),
            ("/v1/chat/completions", "small", "small"),
            ("/v1/chat/completions", "another", "chat"),
            ("/v1/chat/completions", "", "chat"),
            ("/v1/embeddings", "e", "vectors"),
            ("/v1/responses", "org/big", "other"),
        ] {
            assert_eq!(name(path, model), expected, "{path} {model}");
        }
        assert_eq!(routes.find(&Method::POST, "/v1/chat/completions", b"no JSON", false).name, "chat");
        let copies = ["chat", "big", "small", "vectors"].map(|name| routes.copies(name).map(Fraction::get));
        assert_eq!(
            copies,
            [Some(0.003), Some(0.003), Some(0.5), None],
            "those of the known route of the path"
        );
    }

    #[test]
    fn requests_of_repeatable_paths_may_run_twice() {
        let routes = routes("repeatable = ['/api/*', '/ask', '/v1/*']").unwrap();
        for (path, name) in [
            ("/api/v1/score", "api"),
            ("/v1/files", "v1"),
            ("/v1/chat/completions", "chat"),
            ("/apis", "other"),
        ] {
            let route = routes.find(&Method::POST, path, b"", false);
            assert_eq!((&*route.name, route.repeatable), (name, name != "other"), "{path}");
        }
        assert_eq!(routes.find(&Method::DELETE, "/api/a", b"", false).name, "api");
    }

    #[test]
    fn wrong_route_is_named() {
        for (text, part) in [
            ("[routes.'a b']\npaths = ['/a']", "routes.a b: write"),
            ("[routes.other]\npaths = ['/a']", "choose another"),
            ("[routes.a]\npaths = ['a']", ".routes.a.paths: path 'a' must begin with /"),
            ("[routes.a]\npaths = ['/a?model=']", ".routes.a.paths: path '/a?model=' names no model"),
            ("[routes.a]\npaths = ['/a?b=c']", ".routes.a.paths: path '/a?b=c' must not"),
            ("[routes.a]\ngrpc = true\npaths = ['/a.S/{b}?model=m']", "a gRPC call has no JSON body"),
            ("[routes.a]\nmethod = 'post'", ".routes.a.method: 'post'"),
            ("probe = 'health'", ".probe: 'health'"),
            ("repeatable = ['api']", ".repeatable: path 'api' must begin with /"),
            ("repeatable = ['/chat']", ".repeatable: '/chat' would be a second route 'chat'"),
        ] {
            let error = routes(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn address_keeps_its_source() {
        assert_eq!(address("http://a:1"), "upstream+http://a:1");
        assert_eq!(address("dns+https://a:1"), "dns+upstream+https://a:1");
        assert_eq!(address("grpcs://a:1"), "upstream+grpcs://a:1");
        assert!(is_upstream(&address("http://a:1")) && !is_upstream("http://a:1"));
    }
}
