//! Settings of TLS: the mode, the files, and the names of callers and workers.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use parm_durations::{PositiveMillis, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names;

/// TLS of everything that is listened on, and towards workers. Unix sockets stay plain. The files are read again when they
/// change, and new connections get what they say then; `server.max_connection_age_ms` bounds how long older ones last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What is spoken (default `off`). Raise it one word at a time, on all machines before the next: a fleet that runs then
    /// loses no request. Back the same way.
    pub mode: Mode,
    /// The certificate that is shown to callers, and to workers that ask for one: a PEM file, with the certificates between
    /// it and its authority (default: none). `allow` and more need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its private key, a PEM file that only this process should be able to read (default: none).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Authorities of callers, a PEM file: mutual TLS. Whoever speaks TLS here must show a certificate that one of them
    /// signed, with one of `names` (default: none, callers show nothing).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// Who may call, by the alternative names of their certificates: DNS names and URIs such as `spiffe://prod/frontend/*`. A
    /// star stands for any text up to the next `/` of a URI or `.` of a DNS name, two stars for any text, and `"*"` alone for
    /// everyone whom `client_ca` signed. `client_ca` needs it.
    pub names: Vec<String>,
    /// Authorities of workers, a PEM file (default: none). TLS towards workers needs it; the system's are not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Names that workers' certificates must have one of, written as `names` (default: none, the host of their address). For
    /// certificates that name a service and not a machine, and where DNS is asked for addresses (`dns+https://`).
    pub worker_names: Vec<String>,
    /// Milliseconds that a caller may take until TLS is agreed upon (default 10000): one that says nothing does not hold its
    /// connection for ever.
    #[serde(rename = "handshake_timeout_ms", with = "PositiveMillis")]
    pub handshake_timeout: Duration,
    /// Callers with whom TLS is being agreed upon at a time (default 1024): each costs a millisecond of a processor and up to
    /// 64 kilobytes. More wait, within the same time.
    #[serde(with = "Whole::<1, 1_000_000>")]
    pub max_handshakes: NonZeroU32,
}

/// What is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Plain. Workers whose address says `https://` are spoken to in TLS all the same.
    #[default]
    Off,
    /// Callers choose; workers are spoken to in plain.
    Allow,
    /// Callers choose; workers are spoken to in TLS, and in plain where they do not speak it.
    Prefer,
    /// TLS and nothing else, both ways.
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
        names::check("tls.names", &self.names)?;
        names::check("tls.worker_names", &self.worker_names)
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
