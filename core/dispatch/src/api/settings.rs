//! Settings of a dispatcher: those of its pools and of the shares.

use std::collections::BTreeMap;

use super::{PoolId, PoolSettings, ShareId, Terms};

/// The settings of a dispatcher.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Settings of pools without their own.
    pub default: PoolSettings,
    /// Settings of single pools.
    pub pools: BTreeMap<PoolId, PoolSettings>,
    /// Configured shares, next to the pools' own.
    pub shares: BTreeMap<ShareId, Terms>,
}

impl Settings {
    /// One set of settings for every pool.
    pub fn uniform(pool: PoolSettings) -> Self {
        Self { default: pool, pools: BTreeMap::new(), shares: BTreeMap::new() }
    }

    /// The settings of a pool.
    pub fn pool(&self, id: PoolId) -> &PoolSettings {
        self.pools.get(&id).unwrap_or(&self.default)
    }
}
