//! Polls bundles for changes, and applies them once they have settled.

use std::sync::{Arc, Weak};

use parm_transport::Settling;

use super::Core;

/// Polls bundles for as long as the frontend lives.
pub(super) async fn follow(core: Weak<Core>) {
    let mut settling = Settling::default();
    while let Some(strong) = core.upgrade() {
        let every = strong.config.bundles_interval;
        let timers = strong.driver.timers;
        let look = timers.offload(move || {
            let is_first = settling.is_new();
            if settling.look(strong.library.stamp()) && !is_first {
                strong.reload();
                // A new manifest refers to new files.
                settling.believe(strong.library.stamp());
            }
            settling
        });
        match look.await {
            Ok(looked) => settling = looked,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return, // the runtime ends
            },
        }
        tokio::time::sleep(every).await;
    }
}

impl Core {
    /// Rereads the bundles and applies their contents.
    fn reload(self: &Arc<Self>) {
        if self.library.read() {
            tracing::info!("bundles changed");
            self.catalog.all().iter().for_each(|pool| self.apply_settings(pool));
            self.roster.settle(&self.driver, &self.catalog);
            self.examine();
        }
    }
}
