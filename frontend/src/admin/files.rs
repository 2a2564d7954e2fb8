//! Faults of key file, TLS files, bundles and files that the frontend writes: the stream reports them.

use parm_protocol::{StableCode, rest};
use parm_transport::FileFault;
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
        let faults = self.keys.fault().into_iter().chain(self.tls.faults()).chain(bundles(frontend));
        let faults = faults.chain(frontend.unwritten());
        let told = faults.map(|mut fault| {
            rest::shorten(&mut fault.text);
            json!({"code": fault.code.name(), "text": fault.text, "fails": fault.fails})
        });
        told.collect()
    }
}

/// Returns the fault of bundles that do not exist.
fn bundles(frontend: &Frontend) -> Option<FileFault> {
    let path = frontend.core.config.bundles.as_deref().filter(|path| !path.exists())?;
    let text = format!("frontend.bundles: {} does not exist", path.display());
    Some(FileFault { code: StableCode::InvalidBundle, text, fails: true })
}
