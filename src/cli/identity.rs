//! Flags of commands that call servers with TLS.

use std::path::PathBuf;

use clap::Args;
use parm_protocol::Error;
use parm_transport::tls::{self, Tls};

/// The certificate authorities that a client trusts, and its own certificate.
#[derive(Clone, Debug, Default, Args)]
pub struct Identity {
    /// Certificate authorities of the server (PEM), for https:// addresses
    #[arg(long, value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
    /// Client certificate for mutual TLS (PEM), with --key-file
    #[arg(long, value_name = "FILE", global = true)]
    pub cert: Option<PathBuf>,
    /// Private key of --cert (PEM)
    #[arg(long, value_name = "FILE", global = true)]
    pub key_file: Option<PathBuf>,
}

impl Identity {
    /// TLS with these files.
    pub fn tls(&self) -> Result<Tls, Error> {
        let Self { ca, cert, key_file } = self.clone();
        Tls::open(&tls::Config { ca, certificate: cert, key: key_file, ..tls::Config::default() })
    }
}

/// Names these flags in a reason that names settings of a server.
pub fn in_flags(reason: &str) -> String {
    let names = [
        ("set tls.certificate and tls.key", "give a certificate with --cert and --key-file"),
        ("tls.ca or tls.client_ca", "--ca"),
        ("tls.certificate", "--cert"),
    ];
    names.iter().fold(reason.to_owned(), |reason, (setting, flag)| reason.replace(setting, flag))
}
