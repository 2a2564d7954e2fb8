//! Creates pools.

use crate::api::{Payer, PoolId, PoolSettings, Terms};
use crate::state::State;
use crate::state::keys::PoolKey;
use crate::state::pool::Pool;
use crate::turn::Turn;

/// Returns the pool of an id. A new pool is provisional until an instance or settings name it too.
pub(crate) fn pool_named(state: &mut State, turn: &Turn, id: PoolId) -> PoolKey {
    if let Some(key) = state.pool_names.get(id) {
        return key;
    }
    let settings = state.settings.pool(id).clone();
    promise_own(state, id, &settings);
    let key = state.pools.insert(Pool::new(id, settings, turn.now));
    state.pool_names.insert(id, key);
    key
}

pub(crate) fn promise_own(state: &mut State, id: PoolId, settings: &PoolSettings) {
    let terms = Terms { weight: settings.weight.get().into(), reserved: 0 };
    state.book.promise(&Payer::Model(id), terms);
}
