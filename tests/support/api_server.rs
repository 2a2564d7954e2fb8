//! Imitates a Kubernetes API server for one Service: a list of EndpointSlices.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::upstream::{Upstream, say};

/// The server; its threads end with the process.
pub struct Api {
    /// Where it listens.
    pub address: SocketAddr,
    slices: Arc<Mutex<String>>,
}

impl Api {
    /// Answers lists with this status and these slices.
    pub fn start(status: u16, slices: &str) -> Self {
        let slices = Arc::new(Mutex::new(slices.to_owned()));
        let listed = slices.clone();
        let server = Upstream::start(move |_, stream| {
            let body = match status {
                200 => {
                    let items = listed.lock().unwrap();
                    format!(r#"{{"metadata": {{"resourceVersion": "1"}}, "items": [{items}]}}"#)
                }
                _ => r#"{"kind": "Status", "message": "as the test wants it"}"#.to_owned(),
            };
            say(stream, &format!("{status} So"), &body)
        });
        Self { address: server.address, slices }
    }

    /// Lists these slices from now on.
    pub fn set(&self, slices: &str) {
        *self.slices.lock().unwrap() = slices.to_owned();
    }
}
