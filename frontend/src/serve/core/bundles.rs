//! Bundles that change while the frontend runs: they are looked at again and again, and used once they have settled.

use std::sync::{Arc, Weak};

use super::Core;

/// Looks for changes of the bundles as long as the frontend lives.
pub(super) async fn follow(core: Weak<Core>) {
    let (mut known, mut settling) = (None, None);
    while let Some(strong) = core.upgrade() {
        let every = strong.config.bundles_interval;
        let timers = strong.driver.timers;
        let look = timers.offload(move || {
            let stamp = strong.library.stamp();
            let first = known.is_none();
            if first || (known.as_ref() != Some(&stamp) && settling.as_ref() == Some(&stamp)) {
                if !first {
                    strong.reload();
                }
                // A new manifest names new files.
                known = Some(strong.library.stamp());
            }
            (known, Some(stamp))
        });
        match look.await {
            Ok(looked) => (known, settling) = looked,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return, // the runtime ends
            },
        }
        tokio::time::sleep(every).await;
    }
}

impl Core {
    /// Reads the bundles again, and uses what they offer now.
    fn reload(self: &Arc<Self>) {
        if self.library.read() {
            tracing::info!("bundles changed");
            self.catalog.all().iter().for_each(|pool| self.apply_settings(pool));
            self.roster.settle(&self.driver, &self.catalog);
            self.examine();
        }
    }
}
