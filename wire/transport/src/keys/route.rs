//! A row of a table of routes, and the lookup of a request in such a table.

use http::Method;

use super::Access;

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
}

impl Route {
    pub(super) const fn rest(method: Method, path: &'static str, access: Access) -> Self {
        Self { surface: Surface::Rest, method, path, access }
    }

    pub(super) const fn grpc(path: &'static str, access: Access) -> Self {
        Self { surface: Surface::Grpc, method: Method::POST, path, access }
    }

    /// A route of another protocol, on the addresses of clients.
    pub const fn guest(method: Method, path: &'static str, access: Access) -> Self {
        Self::rest(method, path, access)
    }

    /// A page at the metrics address.
    pub const fn page(method: Method, path: &'static str, access: Access) -> Self {
        Self { surface: Surface::Metrics, method, path, access }
    }

    /// A route of the admin address.
    pub const fn admin(method: Method, path: &'static str, access: Access) -> Self {
        Self { surface: Surface::Admin, method, path, access }
    }

    fn takes(&self, method: &Method) -> bool {
        self.method == *method || (*method == Method::HEAD && self.method == Method::GET)
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

/// Whether a path matches a pattern, segment by segment as routers compare them.
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
    use super::super::{METRICS, REST};
    use super::*;

    #[test]
    fn path_is_matched_segment_by_segment() {
        let (get, post) = (Method::GET, Method::POST);
        let rest = |method: &Method, path: &str| find(REST, method, path).map(|route| route.access);
        assert_eq!(rest(&post, "/v2/models/m/infer"), Some(Access::Infer));
        assert_eq!(rest(&post, "/v2/models/a%2Fb/versions/3/infer"), Some(Access::Infer));
        assert_eq!(rest(&Method::HEAD, "/v2/models/stats"), Some(Access::Read));
        assert_eq!(rest(&get, "/v2/models/m"), Some(Access::AnyKey));
        assert_eq!(rest(&post, "/v2/repository/models/infer/unload"), Some(Access::Control));
        for path in
            ["", "/", "//", "/v2//", "/v2/models/", "/v2/models//infer", "/v2/models/m/infer/", "/v2/nothing"]
        {
            assert_eq!(rest(&post, path).or(rest(&get, path)), None, "{path}");
        }
        assert_eq!(rest(&Method::DELETE, "/v2/models/m/infer"), None);
        assert_eq!(methods(REST, "/v2/models/m/infer").collect::<Vec<_>>(), [Method::POST]);
        assert_eq!(methods(REST, "/v2/nothing").count(), 0);
        assert_eq!(find(METRICS, &get, "/v2"), None, "a path of another listener");
    }
}
