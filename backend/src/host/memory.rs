//! Memory that loaded models take, and its limit.
//!
//! Deployed models, parity models and stand-ins are resident together, so a load that exceeds the limit would end the
//! process, or the runs of the others on a card. It is refused instead. A model counts with the size of its files for
//! each copy of its weights, or on a card with the largest memory of its sessions if that is set: the memory of runs is
//! unknown before they happen.

use std::sync::Arc;

use parking_lot::Mutex;
use parm_parity_models::repository::{Format, Version};
use prometheus::IntGauge;

use crate::engine::{Chosen, choose};
use crate::{Config, Error};

const MB: u64 = 1 << 20;

/// The memory of a host's models.
#[derive(Debug)]
pub(super) struct Memory {
    /// In bytes; `None` without a limit.
    limit: Option<u64>,
    taken: Mutex<u64>,
}

/// The memory of one loaded model, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    memory: Arc<Memory>,
    bytes: u64,
    gauge: IntGauge,
}

impl Memory {
    pub(super) fn new(config: &Config) -> Arc<Self> {
        let limit = (config.memory_mb > 0).then(|| config.memory_mb.saturating_mul(MB));
        Arc::new(Self { limit, taken: Mutex::default() })
    }

    /// Takes memory for a model, if there is enough.
    pub(super) fn claim(self: &Arc<Self>, bytes: u64, gauge: IntGauge) -> Result<Claim, Error> {
        let mut taken = self.taken.lock();
        let sum = taken.saturating_add(bytes);
        if let Some(limit) = self.limit.filter(|&limit| sum > limit) {
            let free = limit.saturating_sub(*taken) / MB;
            return Err(Error::Memory { needed: bytes.div_ceil(MB), free, limit: limit / MB });
        }
        *taken = sum;
        gauge.add(signed(bytes));
        Ok(Claim { memory: self.clone(), bytes, gauge })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        *self.memory.taken.lock() -= self.bytes;
        self.gauge.sub(signed(self.bytes));
    }
}

impl Config {
    /// The memory that a version of a model counts with, in bytes.
    pub fn memory_of(&self, version: &Version) -> Result<u64, Error> {
        match version.format {
            Format::Emulated => Ok(0),
            Format::Onnx => {
                let chosen = choose(&self.engine.name, &self.engine)?;
                let copies = chosen.engine.copies_of_weights(&version.path) as u64;
                Ok(self.counted(&chosen, version.bytes().saturating_mul(copies)))
            }
        }
    }

    fn counted(&self, chosen: &Chosen, bytes: u64) -> u64 {
        let copies = if chosen.engine.shares_weights() { 1 } else { self.instances.get() as u64 };
        let session = match (chosen.cuda, self.engine.card_memory()) {
            (Some(_), Some(most)) => bytes.max(most as u64),
            _ => bytes,
        };
        session.saturating_mul(copies)
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    fn gauge() -> IntGauge {
        IntGauge::new("memory", "memory").unwrap()
    }

    #[test]
    fn models_fit_until_the_limit_and_again_after_an_unload() {
        let memory = Memory::new(&Config { memory_mb: 10, ..Config::default() });
        let gauge = gauge();
        let first = memory.claim(6 * MB, gauge.clone()).unwrap();
        let refusal = memory.claim(4 * MB + 1, gauge.clone()).unwrap_err();
        assert_eq!(refusal, Error::Memory { needed: 5, free: 4, limit: 10 });
        let told = refusal.to_string();
        assert!(told.contains("needs 5 MB") && told.contains("backend.memory_mb = 10"), "{told}");
        let second = memory.claim(4 * MB, gauge.clone()).unwrap();
        assert_eq!(gauge.get(), 10 << 20);
        drop(first);
        assert_eq!(gauge.get(), 4 << 20);
        drop((second, memory.claim(6 * MB, gauge.clone()).unwrap()));
        assert_eq!((gauge.get(), *memory.taken.lock()), (0, 0));
    }

    #[test]
    fn memory_is_unlimited_by_default() {
        let memory = Memory::new(&Config::default());
        assert!(memory.claim(u64::MAX / 2, gauge()).is_ok());
    }

    #[test]
    fn copies_and_sessions_on_a_card_count() {
        let mut config = Config { instances: const { NonZeroUsize::new(3).unwrap() }, ..Config::default() };
        config.engine.card_memory_mb = 8;
        let tract = |cuda| Chosen { cuda, ..choose("tract", &Default::default()).unwrap() };
        assert_eq!(config.counted(&tract(None), 5 * MB), 5 * MB, "tract's instances share the weights");
        assert_eq!(config.counted(&tract(Some(0)), 5 * MB), 8 * MB);
        assert_eq!(config.counted(&tract(Some(0)), 9 * MB), 9 * MB);
    }
}
