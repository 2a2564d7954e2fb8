//! Returns held tokens to the instance that granted them.

use crate::api::{Action, Order};
use crate::state::State;
use crate::state::keys::InstanceKey;
use crate::state::tokens::{Leased, Tokens};
use crate::turn::Turn;

/// Returns all tokens of an instance that takes no work, so that other frontends can use it.
pub(crate) fn surrender(state: &mut State, turn: &mut Turn, key: InstanceKey) {
    if state.instances.at(key).tokens.as_ref().is_some_and(Tokens::is_there)
        && !state.instances.at(key).usable()
    {
        give_back(state, turn, key, |_| true);
    }
}

pub(crate) fn give_back(
    state: &mut State,
    turn: &mut Turn,
    key: InstanceKey,
    which: impl Fn(&Leased) -> bool,
) {
    let Some(instance) = state.instances.get_mut(key) else { return };
    let Some(tokens) = &mut instance.tokens else { return };
    let (id, out) = (instance.id, &mut turn.out);
    tokens.held.retain(|held| {
        let goes = which(held);
        if goes {
            out.push(Action::Tell(id, Order::GiveBack(held.token)));
        }
        !goes
    });
}
