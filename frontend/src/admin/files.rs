//! The key file and the TLS files of the server, and the files that the frontend writes: the stream reports their faults.

use parm_protocol::rest;
use parm_transport::keys::Keys;
use parm_transport::tls::Tls;
use serde_json::{Value, json};

use crate::serve::Frontend;

/// The followed files.
#[derive(Clone)]
pub(super) struct FollowedFiles {
    pub(super) keys: Keys,
    pub(super) tls: Tls,
}

impl FollowedFiles {
    /// Returns their faults, in the form of `hello.faults`.
    pub(super) fn faults(&self, frontend: &Frontend) -> Value {
        let faults = self.keys.fault().into_iter().chain(self.tls.faults()).chain(frontend.unwritten());
        let told = faults.map(|mut fault| {
            rest::shorten(&mut fault.text);
            json!({"code": fault.code.name(), "text": fault.text, "fails": fault.fails})
        });
        told.collect()
    }
}
