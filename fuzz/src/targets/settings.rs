//! Any text as a configuration file of a server.

use serde::{Deserialize, Serialize};

/// The sections that the crates define, as the binary combines them.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    server: parm_transport::server::Config,
    frontend: parm_frontend::Config,
    backend: parm_backend::Config,
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(settings) = toml::from_str::<Settings>(text) else { return };
    // A number that TOML cannot represent is not written.
    let Ok(written) = toml::to_string(&settings) else { return };
    let back: Settings = toml::from_str(&written).expect("what we write can be read");
    assert_eq!(toml::to_string(&back).expect("it was written before"), written);
}
