//! The flags of commands that call servers which speak TLS.

use std::path::PathBuf;

use clap::Args;
use parm_protocol::Error;
use parm_transport::tls::{self, Tls};

/// Who is believed, and what is shown to who asks.
#[derive(Clone, Debug, Default, Args)]
pub struct Identity {
    /// Authorities that sign the server's certificate (PEM), where its address says https://
    #[arg(long, value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
    /// A certificate to show to a server that asks for one (PEM), with --key-file
    #[arg(long, value_name = "FILE", global = true)]
    pub cert: Option<PathBuf>,
    /// The private key of --cert (PEM)
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
