//! Shows a line for each epoch and on a terminal a bar, and lets an interrupted run save its checkpoint.

use std::sync::Arc;

use parm_lab::simulator::Progress;
use parm_training::fit::{Epoch, Observer, Stop};

use crate::progress::Bar;

/// The progress of one run.
pub struct EpochBar(Bar);

impl EpochBar {
    /// Makes a bar of unknown length.
    pub fn new() -> Self {
        Self(Bar::new(0, "steps"))
    }
}

impl Observer for EpochBar {
    fn began(&self, step: u64, steps: u64) {
        self.0.resume(step, steps);
    }

    fn stepped(&self, _: u64) {
        self.0.advanced(1);
    }

    fn finished(&self, epoch: &Epoch) {
        let score = epoch.score.map_or(String::new(), |score| format!(", on held-out data {score:.4}"));
        let rate = epoch.groups as f64 / epoch.seconds.max(1e-9);
        let Epoch { epoch, loss, .. } = epoch;
        self.0.tell(&format!("epoch {epoch}: loss {loss:.5}{score}, {rate:.0} groups/s"));
    }

    fn ended(&self, epochs: u64, has_converged: bool) {
        self.0.tell(&match has_converged {
            true => format!("trained {epochs} epochs: more would hardly improve the answers to held-out rows"),
            false => format!(
                "training has not converged after {epochs} epochs: the loss on held-out rows still falls, so give more \
                 --epochs or a larger --rate"
            ),
        });
    }
}

/// Returns a stop that the first SIGINT or SIGTERM requests. The second ends the process at once.
pub fn stop_on_signals() -> anyhow::Result<Arc<Stop>> {
    let stop = Arc::new(Stop::default());
    let requested = stop.clone();
    crate::shutdown::on_signal(move || {
        eprintln!("stopping after this step and writing the checkpoint");
        requested.request();
    })?;
    Ok(stop)
}
