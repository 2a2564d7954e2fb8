//! The one table of what is served, on which listener, to whom.
//!
//! What is not in it is not served: listeners look here before their routers do. Tests hold it to what routers, pages and
//! gRPC services have, in both directions.

use http::Method;

use super::Access;

/// What a route is part of. The first two are served on the addresses of clients and on the Unix socket alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Surface {
    /// The protocol over HTTP, of frontends and workers.
    Rest,
    /// The protocol over gRPC, with health and reflection.
    Grpc,
    /// Pages at the metrics address.
    Metrics,
    /// The admin address of a frontend.
    Admin,
}

/// A route and what it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// What it is part of.
    pub surface: Surface,
    /// The method; `GET` stands for `HEAD` too.
    pub method: Method,
    /// The path; a segment in braces is any one that is not empty.
    pub path: &'static str,
    /// What it wants.
    pub access: Access,
}

const fn rest(method: Method, path: &'static str, access: Access) -> Route {
    Route { surface: Surface::Rest, method, path, access }
}

const fn grpc(path: &'static str, access: Access) -> Route {
    Route { surface: Surface::Grpc, method: Method::POST, path, access }
}

const fn page(method: Method, path: &'static str, access: Access) -> Route {
    Route { surface: Surface::Metrics, method, path, access }
}

const fn admin(method: Method, path: &'static str, access: Access) -> Route {
    Route { surface: Surface::Admin, method, path, access }
}

const GET: Method = Method::GET;
const POST: Method = Method::POST;

/// Every route. Where a path fits several rows the first counts, so rows without braces stand before those with.
pub static ROUTES: &[Route] = &[
    rest(POST, "/v2/models/{model}/infer", Access::Infer),
    rest(POST, "/v2/models/{model}/versions/{version}/infer", Access::Infer),
    rest(GET, "/v2/frames", Access::Infer),
    rest(GET, "/v2/health/live", Access::Everyone),
    rest(GET, "/v2/health/ready", Access::Everyone),
    rest(GET, "/v2", Access::AnyKey),
    rest(GET, "/v2/", Access::AnyKey),
    rest(GET, "/v2/openapi.json", Access::AnyKey),
    rest(GET, "/v2/models", Access::AnyKey),
    rest(GET, "/v2/models/stats", Access::Read),
    rest(GET, "/v2/models/{model}", Access::AnyKey),
    rest(GET, "/v2/models/{model}/ready", Access::AnyKey),
    rest(GET, "/v2/models/{model}/config", Access::AnyKey),
    rest(GET, "/v2/models/{model}/stats", Access::Read),
    rest(GET, "/v2/models/{model}/versions/{version}", Access::AnyKey),
    rest(GET, "/v2/models/{model}/versions/{version}/ready", Access::AnyKey),
    rest(GET, "/v2/models/{model}/versions/{version}/config", Access::AnyKey),
    rest(GET, "/v2/models/{model}/versions/{version}/stats", Access::Read),
    rest(POST, "/v2/repository/index", Access::AnyKey),
    rest(POST, "/v2/repository/models/{model}/load", Access::Control),
    rest(POST, "/v2/repository/models/{model}/unload", Access::Control),
    grpc("/inference.GRPCInferenceService/ModelInfer", Access::Infer),
    grpc("/inference.GRPCInferenceService/ServerLive", Access::Everyone),
    grpc("/inference.GRPCInferenceService/ServerReady", Access::Everyone),
    grpc("/inference.GRPCInferenceService/ServerMetadata", Access::AnyKey),
    grpc("/inference.GRPCInferenceService/ModelReady", Access::AnyKey),
    grpc("/inference.GRPCInferenceService/ModelMetadata", Access::AnyKey),
    grpc("/inference.GRPCInferenceService/ModelConfig", Access::AnyKey),
    grpc("/inference.GRPCInferenceService/ModelStatistics", Access::Read),
    grpc("/inference.GRPCInferenceService/RepositoryIndex", Access::AnyKey),
    grpc("/inference.GRPCInferenceService/RepositoryModelLoad", Access::Control),
    grpc("/inference.GRPCInferenceService/RepositoryModelUnload", Access::Control),
    grpc("/grpc.health.v1.Health/Check", Access::Everyone),
    grpc("/grpc.health.v1.Health/Watch", Access::Everyone),
    grpc("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Access::AnyKey),
    grpc("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Access::AnyKey),
    page(GET, "/metrics", Access::Read),
    page(GET, "/faults", Access::Read),
    page(POST, "/faults", Access::Control),
    page(Method::PUT, "/faults", Access::Control),
    admin(GET, "/", Access::Everyone),
    admin(GET, "/page/{name}", Access::Everyone),
    admin(GET, "/admin/v1/held", Access::Read),
    admin(GET, "/admin/v1/instances", Access::Read),
    admin(POST, "/admin/v1/instances", Access::Control),
    admin(GET, "/admin/v1/instances/{number}", Access::Read),
    admin(Method::DELETE, "/admin/v1/instances/{number}", Access::Control),
    admin(POST, "/admin/v1/instances/{number}/{order}", Access::Control),
    admin(GET, "/admin/v1/queries", Access::Read),
    admin(GET, "/admin/v1/queries/{id}", Access::Read),
    admin(GET, "/admin/v1/recording", Access::Read),
    admin(GET, "/admin/v1/shares", Access::Read),
    admin(GET, "/admin/v1/stream", Access::Read),
    admin(GET, "/admin/v1/settings", Access::Read),
    admin(Method::PATCH, "/admin/v1/settings", Access::Control),
    admin(GET, "/admin/v1/settings/{model}", Access::Read),
    admin(Method::PATCH, "/admin/v1/settings/{model}", Access::Control),
    admin(Method::DELETE, "/admin/v1/settings/{model}", Access::Control),
];

/// What a request wants; `None` for one that is not served.
pub fn find(surface: Surface, method: &Method, path: &str) -> Option<Access> {
    let method = if *method == Method::HEAD { &GET } else { method };
    let routes = ROUTES.iter().filter(|route| route.surface == surface && route.method == *method);
    routes.into_iter().find(|route| fits(route.path, path)).map(|route| route.access)
}

/// The methods that a path takes; none for a path that is not served.
pub fn methods(surface: Surface, path: &str) -> impl Iterator<Item = &'static Method> {
    let routes = ROUTES.iter().filter(move |route| route.surface == surface && fits(route.path, path));
    routes.map(|route| &route.method)
}

/// Whether a path is one of those that a pattern stands for, segment by segment as routers compare them.
fn fits(pattern: &str, path: &str) -> bool {
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
    fn a_path_is_found_segment_by_segment() {
        let rest = |method: Method, path: &str| find(Surface::Rest, &method, path);
        assert_eq!(rest(POST, "/v2/models/m/infer"), Some(Access::Infer));
        assert_eq!(rest(POST, "/v2/models/a%2Fb/versions/3/infer"), Some(Access::Infer));
        assert_eq!(rest(Method::HEAD, "/v2/models/stats"), Some(Access::Read));
        assert_eq!(rest(GET, "/v2/models/m"), Some(Access::AnyKey));
        assert_eq!(rest(POST, "/v2/repository/models/infer/unload"), Some(Access::Control));
        for path in
            ["", "/", "//", "/v2//", "/v2/models/", "/v2/models//infer", "/v2/models/m/infer/", "/v2/nothing"]
        {
            assert_eq!(rest(POST, path).or(rest(GET, path)), None, "{path}");
        }
        assert_eq!(rest(Method::DELETE, "/v2/models/m/infer"), None);
        assert_eq!(methods(Surface::Rest, "/v2/models/m/infer").collect::<Vec<_>>(), [Method::POST]);
        assert_eq!(methods(Surface::Rest, "/v2/nothing").count(), 0);
        assert_eq!(find(Surface::Metrics, &GET, "/v2"), None, "another listener's");
    }

    #[test]
    fn no_row_hides_another_that_wants_more() {
        for (at, route) in ROUTES.iter().enumerate() {
            for later in &ROUTES[at + 1..] {
                let same = route.surface == later.surface && route.method == later.method;
                assert!(!same || !fits(route.path, later.path), "{} hides {}", route.path, later.path);
            }
        }
    }
}
