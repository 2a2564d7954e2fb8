//! A router with a list of its routes, which a test compares with a [table](crate::keys::Route).

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use http::Method;

/// A router under construction, and its routes.
pub struct Routes<S> {
    router: Router<S>,
    served: Vec<(Method, &'static str)>,
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Self { router: Router::new(), served: Vec::new() }
    }
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    /// Serves a path for a method.
    pub fn on<H, T>(mut self, method: Method, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).expect("routes are for ordinary methods");
        self.router = self.router.route(path, on(filter, handler));
        self.served.push((method, path));
        self
    }

    /// The router.
    pub fn router(self) -> Router<S> {
        self.router
    }

    /// The routes that it serves.
    pub fn served(&self) -> &[(Method, &'static str)] {
        &self.served
    }
}
