//! A request to stop, seen by everything that takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once, from anywhere. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
