//! The routes of a server, what answers each, and the access that each requires.
//!
//! A route without a row is not served. Only requests that the service forwards have no row, and require [`Access::Infer`]. Each
//! server adds the rows of its own pages: the worker its faults, the frontend its admin API. `openapi.json` describes the rows of
//! HTTP for people.

use http::Method;
use parm_protocol::grpc::inference as proto;

use crate::grpc::Method as Call;
use crate::keys::Access;

/// The listener that serves a route. The first two are served on the addresses of clients and on the Unix socket alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Surface {
    /// The protocol over HTTP.
    Rest,
    /// The protocol over gRPC.
    Grpc,
    /// Pages at the metrics address.
    Metrics,
    /// The admin address.
    Admin,
}

/// A route and the access that it requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The listener that serves it.
    pub surface: Surface,
    /// The method; `GET` includes `HEAD`.
    pub method: Method,
    /// The path; a segment in braces matches any segment that is not empty.
    pub path: &'static str,
    /// The access that it requires.
    pub access: Access,
    pub(crate) endpoint: Endpoint,
}

/// What answers a request of the protocol, over HTTP or gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// A page of its own.
    Page,
    Server,
    Live,
    Ready,
    Models,
    Metadata,
    ModelReady,
    ModelConfig,
    Statistics,
    Infer,
    Index,
    Load,
    Unload,
    Frames,
    OpenApi,
    TextModels,
    Embeddings,
    ScoreDocuments,
    Embed,
    Rerank,
    Check,
    Watch,
    Reflection,
    ReflectionAlpha,
}

const GET: Method = Method::GET;
const POST: Method = Method::POST;

/// The protocol over HTTP, of frontends and workers.
pub static REST: &[Route] = &[
    Route::rest(POST, "/v2/models/{model}/infer", Access::Infer, Endpoint::Infer),
    Route::rest(POST, "/v2/models/{model}/versions/{version}/infer", Access::Infer, Endpoint::Infer),
    Route::rest(GET, "/v2/frames", Access::Infer, Endpoint::Frames),
    Route::rest(GET, "/v1/models", Access::AnyKey, Endpoint::TextModels),
    Route::rest(POST, "/v1/embeddings", Access::Infer, Endpoint::Embeddings),
    Route::rest(POST, "/v1/rerank", Access::Infer, Endpoint::ScoreDocuments),
    Route::rest(POST, "/embed", Access::Infer, Endpoint::Embed),
    Route::rest(POST, "/rerank", Access::Infer, Endpoint::Rerank),
    Route::rest(GET, "/v2/health/live", Access::Everyone, Endpoint::Live),
    Route::rest(GET, "/v2/health/ready", Access::Everyone, Endpoint::Ready),
    Route::rest(GET, "/v2", Access::AnyKey, Endpoint::Server),
    Route::rest(GET, "/v2/", Access::AnyKey, Endpoint::Server),
    Route::rest(GET, "/v2/openapi.json", Access::AnyKey, Endpoint::OpenApi),
    Route::rest(GET, "/v2/models", Access::AnyKey, Endpoint::Models),
    Route::rest(GET, "/v2/models/stats", Access::Read, Endpoint::Statistics),
    Route::rest(GET, "/v2/models/{model}", Access::AnyKey, Endpoint::Metadata),
    Route::rest(GET, "/v2/models/{model}/ready", Access::AnyKey, Endpoint::ModelReady),
    Route::rest(GET, "/v2/models/{model}/config", Access::AnyKey, Endpoint::ModelConfig),
    Route::rest(GET, "/v2/models/{model}/stats", Access::Read, Endpoint::Statistics),
    Route::rest(GET, "/v2/models/{model}/versions/{version}", Access::AnyKey, Endpoint::Metadata),
    Route::rest(GET, "/v2/models/{model}/versions/{version}/ready", Access::AnyKey, Endpoint::ModelReady),
    Route::rest(GET, "/v2/models/{model}/versions/{version}/config", Access::AnyKey, Endpoint::ModelConfig),
    Route::rest(GET, "/v2/models/{model}/versions/{version}/stats", Access::Read, Endpoint::Statistics),
    Route::rest(POST, "/v2/repository/index", Access::AnyKey, Endpoint::Index),
    Route::rest(POST, "/v2/repository/models/{model}/load", Access::Control, Endpoint::Load),
    Route::rest(POST, "/v2/repository/models/{model}/unload", Access::Control, Endpoint::Unload),
];

/// The protocol over gRPC, with health and reflection.
pub static GRPC: &[Route] = &[
    Route::grpc(proto::ModelInferRequest::PATH, Access::Infer, Endpoint::Infer),
    Route::grpc(proto::ServerLiveRequest::PATH, Access::Everyone, Endpoint::Live),
    Route::grpc(proto::ServerReadyRequest::PATH, Access::Everyone, Endpoint::Ready),
    Route::grpc(proto::ServerMetadataRequest::PATH, Access::AnyKey, Endpoint::Server),
    Route::grpc(proto::ModelReadyRequest::PATH, Access::AnyKey, Endpoint::ModelReady),
    Route::grpc(proto::ModelMetadataRequest::PATH, Access::AnyKey, Endpoint::Metadata),
    Route::grpc(proto::ModelConfigRequest::PATH, Access::AnyKey, Endpoint::ModelConfig),
    Route::grpc(proto::ModelStatisticsRequest::PATH, Access::Read, Endpoint::Statistics),
    Route::grpc(proto::RepositoryIndexRequest::PATH, Access::AnyKey, Endpoint::Index),
    Route::grpc(proto::RepositoryModelLoadRequest::PATH, Access::Control, Endpoint::Load),
    Route::grpc(proto::RepositoryModelUnloadRequest::PATH, Access::Control, Endpoint::Unload),
    Route::grpc("/grpc.health.v1.Health/Check", Access::Everyone, Endpoint::Check),
    Route::grpc("/grpc.health.v1.Health/Watch", Access::Everyone, Endpoint::Watch),
    Route::grpc(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        Access::AnyKey,
        Endpoint::Reflection,
    ),
    Route::grpc(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        Access::AnyKey,
        Endpoint::ReflectionAlpha,
    ),
];

/// Metrics, at the metrics address.
pub static METRICS: &[Route] = &[Route::page(GET, "/metrics", Access::Read)];

impl Route {
    const fn rest(method: Method, path: &'static str, access: Access, endpoint: Endpoint) -> Self {
        Self { surface: Surface::Rest, method, path, access, endpoint }
    }

    const fn grpc(path: &'static str, access: Access, endpoint: Endpoint) -> Self {
        Self { surface: Surface::Grpc, method: POST, path, access, endpoint }
    }

    /// A route of another protocol, on the addresses of clients.
    pub const fn guest(method: Method, path: &'static str, access: Access) -> Self {
        Self::rest(method, path, access, Endpoint::Page)
    }

    /// A page at the metrics address.
    pub const fn page(method: Method, path: &'static str, access: Access) -> Self {
        Self { surface: Surface::Metrics, method, path, access, endpoint: Endpoint::Page }
    }

    /// A route of the admin address.
    pub const fn admin(method: Method, path: &'static str, access: Access) -> Self {
        Self { surface: Surface::Admin, method, path, access, endpoint: Endpoint::Page }
    }

    fn takes(&self, method: &Method) -> bool {
        self.method == *method || (*method == Method::HEAD && self.method == Method::GET)
    }

    /// The segment of a path that stands for this name in braces.
    pub(crate) fn segment<'a>(&self, name: &str, path: &'a str) -> Option<&'a str> {
        let is_named =
            |known: &str| known.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) == Some(name);
        self.path
            .split('/')
            .zip(path.split('/'))
            .find(|(known, _)| is_named(known))
            .map(|(_, segment)| segment)
    }
}

/// The row of a request; `None` if the table does not serve it. The first row that matches counts, so rows without braces
/// must stand before rows with them.
pub fn find(table: &'static [Route], method: &Method, path: &str) -> Option<&'static Route> {
    table.iter().find(|route| route.takes(method) && matches(route.path, path))
}

/// The methods that a path takes; none for a path that the table does not serve.
pub fn methods(table: &'static [Route], path: &str) -> impl Iterator<Item = &'static Method> {
    table.iter().filter(move |route| matches(route.path, path)).map(|route| &route.method)
}

fn matches(pattern: &str, path: &str) -> bool {
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return true,
            (Some(any), Some(segment)) if any.starts_with('{') => {
                if segment.is_empty() {
                    return false;
                }
            }
            (Some(known), Some(segment)) if known == segment => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_before_rows_with_braces() {
        for route in [REST, GRPC, METRICS].into_iter().flatten() {
            let table = match route.surface {
                Surface::Rest => REST,
                Surface::Grpc => GRPC,
                Surface::Metrics | Surface::Admin => METRICS,
            };
            let found = find(table, &route.method, route.path).map(|found| found.path);
            assert_eq!(found, Some(route.path), "an earlier row hides this one");
        }
    }

    #[test]
    fn path_is_matched_segment_by_segment() {
        let (get, post) = (Method::GET, Method::POST);
        let rest = |method: &Method, path: &str| find(REST, method, path).map(|route| route.access);
        assert_eq!(rest(&post, "/v2/models/m/infer"), Some(Access::Infer));
        assert_eq!(rest(&post, "/v2/models/a%2Fb/versions/3/infer"), Some(Access::Infer));
        assert_eq!(rest(&Method::HEAD, "/v2/models/stats"), Some(Access::Read));
        assert_eq!(rest(&post, "/v2/repository/models/infer/unload"), Some(Access::Control));
        for path in
            ["", "/", "//", "/v2//", "/v2/models/", "/v2/models//infer", "/v2/models/m/infer/", "/v2/nothing"]
        {
            assert_eq!(rest(&post, path).or(rest(&get, path)), None, "{path}");
        }
        assert_eq!(rest(&Method::DELETE, "/v2/models/m/infer"), None);
        assert_eq!(methods(REST, "/v2/models/m/infer").collect::<Vec<_>>(), [Method::POST]);
        let versioned = find(REST, &get, "/v2/models/a/versions/7/ready").unwrap();
        let segments =
            ["model", "version", "x"].map(|name| versioned.segment(name, "/v2/models/a/versions/7/ready"));
        assert_eq!(segments, [Some("a"), Some("7"), None]);
    }

    #[test]
    fn openapi_describes_routes_that_are_served() {
        let document: serde_json::Value =
            serde_json::from_str(include_str!("server/rest/openapi.json")).unwrap();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
                let method: Method = method.to_uppercase().parse().unwrap();
                let found = REST.iter().any(|route| route.path == path && route.method == method);
                assert!(found, "openapi.json describes {method} {path}");
            }
        }
    }
}
