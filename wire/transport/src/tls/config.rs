//! Settings of TLS: the mode, the files, and the names of callers and workers.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::verify::check_names;

/// TLS of all listeners and of connections to workers. Unix sockets stay plain. Changed files apply to new connections;
/// `server.max_connection_age_ms` ends the older ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Use of TLS. To switch a running fleet without losing requests, change it one step at a time on all machines. Default
    /// `off`.
    pub mode: Mode,
    /// Certificate of this process, with its chain, in a PEM file. Every mode but `off` needs it. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Private key of the certificate, in a PEM file that only this process can read. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Authorities that sign the certificates of callers, in a PEM file. Set it, with `names`, for mutual TLS. Default:
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// Names of the callers that are allowed, as DNS names or URIs in their certificates, such as
    /// `spiffe://prod/frontend/*`. `*` stands for text without `/` (or `.` in DNS names), `**` for any text. `"*"` alone
    /// allows every certificate of `client_ca`.
    pub names: Vec<String>,
    /// Authorities that sign the certificates of workers, in a PEM file. TLS to workers needs it. Default: none.
    // The authorities of the system are not used: a public one must not vouch for workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Names of which a worker's certificate must have one, written as in `names`. Set it if certificates name a service,
    /// or with `dns+https://`. Default: none, the host of the address.
    pub worker_names: Vec<String>,
    /// Timeout for a handshake. Only silent clients need longer.
    #[serde(skip)]
    pub handshake_timeout: Duration,
    /// Handshakes at a time. More wait within the same timeout. A handshake takes a millisecond of a core and up to 64 kB, so
    /// the default is a second of work and 64 MB.
    #[serde(skip)]
    pub max_handshakes: NonZeroU32,
}

/// The use of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Plain, except to workers with an `https://` address.
    #[default]
    Off,
    /// Callers choose; plain to workers.
    Allow,
    /// Callers choose; TLS to workers.
    Prefer,
    /// TLS only, from callers and to workers.
    Require,
}

impl Config {
    /// Checks the settings against each other. The error states what to do.
    pub(super) fn check(&self) -> Result<(), String> {
        match (&self.certificate, &self.key) {
            (Some(_), None) => return Err("tls.certificate needs tls.key, its private key: set both".into()),
            (None, Some(_)) => return Err("tls.key needs tls.certificate: set both".into()),
            (None, None) if self.mode > Mode::Off => {
                return Err(format!(
                    "tls.mode = \"{}\" needs tls.certificate and tls.key: name their files",
                    self.mode.name()
                ));
            }
            _ => {}
        }
        match (&self.client_ca, self.names.is_empty()) {
            (Some(_), true) => {
                return Err(
                    "tls.client_ca without tls.names admits nobody: name the callers, such as names = \
                            [\"spiffe://prod/frontend/*\"], or [\"*\"] for all that the authority signed"
                        .into(),
                );
            }
            (None, false) => {
                return Err(
                    "tls.names requires tls.client_ca: name the authorities of callers, or remove the names"
                        .into(),
                );
            }
            _ => {}
        }
        check_names("tls.names", &self.names)?;
        check_names("tls.worker_names", &self.worker_names)
    }

    /// Whether TLS is off entirely.
    pub(super) fn is_empty(&self) -> bool {
        self.mode == Mode::Off && self.certificate.is_none() && self.client_ca.is_none() && self.ca.is_none()
    }
}

impl Mode {
    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Allow => "allow",
            Mode::Prefer => "prefer",
            Mode::Require => "require",
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            certificate: None,
            key: None,
            client_ca: None,
            names: Vec::new(),
            ca: None,
            worker_names: Vec::new(),
            handshake_timeout: Duration::from_secs(10),
            max_handshakes: const { NonZeroU32::new(1024).unwrap() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictory_settings_are_rejected_with_advice() {
        let certified = Config {
            mode: Mode::Require,
            certificate: Some("c.pem".into()),
            key: Some("k.pem".into()),
            ..Config::default()
        };
        assert_eq!(certified.check(), Ok(()));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mutual =
            Config { client_ca: Some("ca.pem".into()), names: names(&["spiffe://a/*"]), ..certified.clone() };
        assert_eq!(mutual.check(), Ok(()));
        let cases = [
            (Config { mode: Mode::Allow, ..Config::default() }, "needs tls.certificate"),
            (Config { key: None, ..certified.clone() }, "tls.key"),
            (Config { certificate: None, ..certified.clone() }, "tls.certificate"),
            (Config { names: Vec::new(), ..mutual.clone() }, "[\"*\"] for all"),
            (Config { client_ca: None, ..mutual.clone() }, "requires tls.client_ca"),
            (Config { names: names(&[""]), ..mutual.clone() }, "empty"),
            (Config { worker_names: names(&["a b"]), ..mutual }, "tls.worker_names"),
        ];
        for (config, word) in cases {
            let told = config.check().unwrap_err();
            assert!(told.contains(word), "{told}");
        }
    }
}
