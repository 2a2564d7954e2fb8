//! Checks that the keys and models exist which the configured shares name.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::anyhow;
use parm_transport::keys::KeyFile;

use crate::settings::Settings;

/// The command that reads the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// `parm serve`, which reads the clients' keys.
    Frontend,
    /// `parm worker`, which receives the share with each job: only frontends read keys.
    Worker,
}

impl Settings {
    /// Checks the shares and copies them to the parts that use them.
    pub fn with_shares(mut self, reader: Reader) -> anyhow::Result<Self> {
        self.check_shares(reader).map_err(|error| anyhow!("share: {error:#}"))?;
        self.frontend.shares = self.share.clone();
        self.backend.shares = self.share.clone();
        Ok(self)
    }

    fn check_shares(&self, reader: Reader) -> anyhow::Result<()> {
        self.share.check()?;
        let names_keys = self.share.0.values().any(|share| !share.keys.is_empty());
        if reader == Reader::Frontend && names_keys {
            let known = self.server.keys_file.as_deref().map(names).transpose()?;
            self.share.check_keys(known.as_ref())?;
        }
        let inside = reader == Reader::Worker || self.embeds();
        let outside = !self.frontend.workers.is_empty() || self.frontend.workers_file.is_some();
        // Remote workers come and go, with their models.
        if inside && (reader == Reader::Worker || !outside) {
            self.share.check_instances(self.backend.instances.get())?;
            let known = self.known_models()?;
            self.share.check_models(|model| known.contains(model))?;
        }
        Ok(())
    }

    /// The models that this process can serve.
    fn known_models(&self) -> anyhow::Result<BTreeSet<String>> {
        let mut known: BTreeSet<String> = self.backend.emulated.keys().cloned().collect();
        for entry in self.backend.models.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten()
        {
            let entry = entry?;
            known.extend(entry.file_name().into_string().ok().filter(|_| entry.path().is_dir()));
        }
        Ok(known)
    }
}

/// The names of a file's keys. An invalid file is an error here too, because no client could be admitted.
fn names(file: &Path) -> anyhow::Result<BTreeSet<String>> {
    let keys = KeyFile::open(file)
        .map_err(|reason| anyhow!("cannot use the key file {}: {reason}", file.display()))?;
    Ok(keys.keys.into_iter().map(|key| key.name).collect())
}

#[cfg(test)]
mod tests {
    use parm_transport::keys::{Digest, Entry, Role};

    use super::*;

    /// The error of a configuration, if it has one.
    fn told(text: &str, reader: Reader) -> Option<String> {
        let settings: Settings = toml::from_str(text).unwrap();
        settings.with_shares(reader).err().map(|error| error.to_string())
    }

    const MODELS: &str = "[backend]\ninstances = 2\n[backend.emulated.m]\n";

    #[test]
    fn share_with_unknown_model_or_too_many_instances_is_refused() {
        for reader in [Reader::Frontend, Reader::Worker] {
            let good = format!("[share.a]\nweight = 2\nreserved = 1\nmodels = [\"m\"]\n{MODELS}");
            assert_eq!(told(&good, reader), None);
            let unknown = told(&good.replace("[\"m\"]", "[\"n\"]"), reader).unwrap();
            assert!(unknown.contains("'n'") && unknown.contains("'a'"), "{unknown}");
            let many = told(&good.replace("reserved = 1", "reserved = 3"), reader).unwrap();
            assert!(many.contains("shares reserve 3 instances, but there are 2"), "{many}");
        }
        // Remote workers are not known yet.
        let elsewhere = "[share.a]\nmodels = [\"n\"]\nreserved = 9\n[frontend]\nworkers = [\"http://w:1\"]\n";
        assert_eq!(told(elsewhere, Reader::Frontend), None);
    }

    #[test]
    fn keys_must_be_in_the_key_file_which_only_frontends_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys.toml");
        let entry = Entry::new("search", Role::Infer, Digest::of(b"hush"));
        std::fs::write(&file, toml::to_string(&KeyFile { keys: vec![entry] }).unwrap()).unwrap();
        let with = |key: &str, server: &str| format!("[share.a]\nkeys = [\"{key}\"]\n{server}{MODELS}");
        let server = format!("[server]\nkeys_file = {file:?}\n");
        assert_eq!(told(&with("search", &server), Reader::Frontend), None);
        let unknown = told(&with("serch", &server), Reader::Frontend).unwrap();
        assert!(unknown.contains("'serch'"), "{unknown}");
        let open = told(&with("search", ""), Reader::Frontend).unwrap();
        assert!(open.contains("keys_file"), "{open}");
        assert_eq!(told(&with("serch", ""), Reader::Worker), None);
    }
}
