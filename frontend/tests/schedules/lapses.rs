//! Short lapses of a folder, a file, an answer or a list: nothing is removed because of a single one.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::admin::Admin;
use crate::run::Stage;
use crate::schedule::{Lapse, Model, What};
use crate::world::Truth;

/// Time for a change to be in effect: two polls of bundles, a description of models, a linearity test.
const SETTLING: Duration = Duration::from_secs(8);
/// Time for the frontend to notice a lapse: two polls of bundles, and reading them.
const NOTICE: Duration = Duration::from_millis(2600);
/// Interval between two comparisons.
const PAUSE: Duration = Duration::from_millis(200);

/// Records an event that may change the effective settings.
pub(crate) fn notes(truth: &mut Truth, what: &What) {
    // Instances do not matter: one that has all models is always present.
    let decides = matches!(
        what,
        What::Settings(..)
            | What::Together(_)
            | What::Bundle(_)
            | What::Load(_)
            | What::Unload(_)
            | What::Serve(..)
    );
    if decides {
        truth.changed = Instant::now();
    }
}

/// Restores the folder of bundles.
pub(crate) fn give_back(folder: &Path) {
    let away = folder.join("away");
    if away.is_dir() {
        fs::rename(away, folder.join("bundles")).expect("a folder can be renamed");
    }
}

impl Truth {
    /// The name server's next answer.
    pub(crate) fn resolves(&mut self) -> Result<Vec<String>, String> {
        let mut servers = self.dns.clone()?;
        match self.lapse.take() {
            None => {}
            Some(Lapse::Empty) => servers.clear(),
            Some(Lapse::Error) => return Err("no answer".into()),
            Some(Lapse::Short(place)) => drop(servers.remove(place % servers.len())),
        }
        Ok(servers)
    }
}

impl Stage {
    /// The folder of bundles is missing for less than two polls: the effective settings stay.
    pub(crate) async fn takes_bundles(&self, ms: u64) {
        let since = self.world.0.lock().changed;
        let before = in_force(&self.admin).await;
        fs::rename(self.folder.join("bundles"), self.folder.join("away")).expect("a folder can be renamed");
        let (world, admin, folder) = (self.world.clone(), self.admin.clone(), self.folder.clone());
        let settled = since + SETTLING < Instant::now();
        tokio::spawn(async move {
            sleep(Duration::from_millis(ms)).await;
            give_back(&folder);
            let until = Instant::now() + NOTICE;
            while settled && Instant::now() < until && world.0.lock().changed == since {
                let now = in_force(&admin).await;
                if now != before {
                    world.0.lock().breach("a lapse of one poll removes nothing", || {
                        format!("after {ms} ms without bundles {now} is in effect, before it was {before}")
                    });
                }
                sleep(PAUSE).await;
            }
        });
    }

    /// The workers file is missing for less than two polls: its members stay.
    pub(crate) fn takes_file(&self, ms: u64) {
        let (file, text) = (self.folder.join("workers"), self.listed.lock().clone());
        let (writes, own) = (self.writes.clone(), self.writes.fetch_add(1, Ordering::Relaxed) + 1);
        fs::remove_file(&file).expect("a file can be removed");
        tokio::spawn(async move {
            sleep(Duration::from_millis(ms)).await;
            if writes.load(Ordering::Relaxed) == own {
                fs::write(file, text).expect("a file can be written");
            }
        });
    }
}

/// The effective settings of model 0 that depend on bundles.
async fn in_force(admin: &Admin) -> Value {
    let standing = &admin.settings().await["in_force"][Model::Asked(0).name()]["1"];
    json!({ "policy": standing["policy"], "coding": standing["coding"], "default": standing["default_answer"] })
}
