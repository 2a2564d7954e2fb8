//! Shows a line for each epoch, and on a terminal a bar with throughput and remaining time.

use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use parm_training::fit::{Epoch, Observer};

/// The progress of one run.
pub struct EpochBar {
    bar: ProgressBar,
    groups: std::sync::Arc<AtomicU64>,
}

impl EpochBar {
    /// Makes a bar of unknown length.
    pub fn new() -> Self {
        let groups = std::sync::Arc::new(AtomicU64::new(0));
        let seen = groups.clone();
        let rate = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let rate = seen.load(Ordering::Relaxed) as f64 / state.elapsed().as_secs_f64().max(1e-3);
            _ = write!(out, "{rate:.0}");
        };
        let bar = ProgressBar::new(0);
        let style =
            ProgressStyle::with_template("{wide_bar} step {pos} of {len}, {rate} groups/s, {eta} left");
        let style = style.map(|style| style.with_key("rate", rate));
        Self { bar: style.map_or(bar.clone(), |style| bar.with_style(style)), groups }
    }
}

impl Observer for EpochBar {
    fn began(&self, step: u64, steps: u64) {
        self.bar.set_length(steps);
        self.bar.set_position(step);
        self.bar.reset_eta();
    }

    fn stepped(&self, groups: u64) {
        self.groups.fetch_add(groups, Ordering::Relaxed);
        self.bar.inc(1);
    }

    fn finished(&self, epoch: &Epoch) {
        let score = epoch.score.map_or(String::new(), |score| format!(", on held-out data {score:.4}"));
        let rate = epoch.groups as f64 / epoch.seconds.max(1e-9);
        self.bar.suspend(|| {
            eprintln!("epoch {}: loss {:.5}{score}, {rate:.0} groups/s", epoch.epoch, epoch.loss);
        });
    }
}

impl Drop for EpochBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
