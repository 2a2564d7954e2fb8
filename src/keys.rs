//! `parm keys`: makes keys and lists the names in a key file.

use std::fs::OpenOptions;
use std::io::Write;
use std::num::NonZeroU32;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use parm_transport::keys::{Entry, KeyFile, Role, Token};
use serde_json::json;

use crate::Failure;
use crate::cli::Output;
use crate::printer::print;

pub const EXAMPLES: &str = "Examples:
  parm keys new search --role infer --rate 500 --file keys.toml
      a key for 500 requests a second; its digest is appended to keys.toml
  parm serve --worker http://10.0.0.5:8000 --set server.keys_file=keys.toml
      a frontend that requires keys
  parm keys list keys.toml
      names, roles and limits";

/// `parm keys`.
#[derive(Debug, Args)]
pub struct Keys {
    #[command(subcommand)]
    pub command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a key, which is printed once and not stored
    New {
        /// Name of the client, for logs: letters, digits, '-', '_', '.' and '@'
        name: String,
        /// Role: infer (predictions), read (metrics and the admin page) or control (all of it, and changes)
        #[arg(long, default_value = "infer")]
        role: Role,
        /// Rate limit in requests per second [default: none]
        #[arg(long, value_name = "N")]
        rate: Option<f64>,
        /// Requests at a time [default: unlimited]
        #[arg(long, value_name = "N")]
        concurrency: Option<NonZeroU32>,
        /// Key file to append the entry to; a new file is readable by its owner only
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Form of the output
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// List the keys of a file, with roles and limits
    List {
        /// Key file
        file: PathBuf,
        /// Form of the output
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

/// Runs the command.
pub fn main(command: &KeysCommand) -> Result<(), Failure> {
    match command {
        KeysCommand::New { name, role, rate, concurrency, file, output } => {
            let secret = Token::draw().context("cannot get random bytes from the kernel")?;
            let entry =
                Entry { rate: *rate, concurrency: *concurrency, ..Entry::new(name, *role, secret.digest()) };
            let entry = written(entry).map_err(Failure::Configuration)?;
            if let Some(path) = file {
                append(path, &entry).map_err(Failure::Configuration)?;
            }
            let data = json!({ "key": secret.reveal(), "sha256": secret.digest(), "entry": entry });
            print(*output, &data, || told(&secret, &entry, file.as_deref()))?;
        }
        KeysCommand::List { file, output } => {
            let KeyFile { keys } = read(file).map_err(Failure::Configuration)?;
            print(*output, &keys, || keys.iter().map(line).collect::<Vec<_>>().join("\n"))?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<KeyFile> {
    KeyFile::open(path).map_err(|reason| anyhow!("{}: {reason}", path.display()))
}

/// Returns an entry as the text of a key file.
fn written(entry: Entry) -> anyhow::Result<String> {
    let text = toml::to_string(&KeyFile { keys: vec![entry] })?;
    KeyFile::read(&text).map_err(|reason| anyhow!(reason))?;
    Ok(text)
}

/// Appends an entry to a file, if the result is a valid key file.
fn append(path: &Path, entry: &str) -> anyhow::Result<()> {
    let before = match path.try_exists() {
        Ok(false) => String::new(),
        _ => KeyFile::text(path).map_err(|reason| anyhow!("{}: {reason}", path.display()))?,
    };
    let gap = if before.is_empty() { "" } else { "\n" };
    KeyFile::read(&format!("{before}{gap}{entry}"))
        .map_err(|reason| anyhow!("{}: {reason}", path.display()))?;
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(format!("{gap}{entry}").as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The key and its entry for people.
fn told(secret: &Token, entry: &str, file: Option<&Path>) -> String {
    let place = match file {
        Some(path) => format!("its entry is in {}; servers read it within seconds", path.display()),
        None => format!("its entry in the key file (server.keys_file):\n\n{}", entry.trim_end()),
    };
    format!(
        "key, printed only once: send it as 'authorization: Bearer KEY'\n\n{}\n\n{place}",
        secret.reveal()
    )
}

fn line(key: &Entry) -> String {
    let rate = key.rate.map_or("any rate".to_owned(), |rate| format!("{rate} requests a second"));
    let at_a_time = key.concurrency.map(|most| format!(", {most} at a time")).unwrap_or_default();
    format!("{:<24} {:<8} {rate}{at_a_time}", key.name, key.role.name())
}
