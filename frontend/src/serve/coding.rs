//! Where the dispatcher's coding meets tensors: groups are encoded here, lost predictions decoded.
//!
//! No code is loaded so far, so a group that the dispatcher wants encoded goes without parities and a slot stays
//! undecoded; both are answers that the dispatcher knows to live with.

use std::sync::Arc;

use parm_protocol::ModelRef;

use super::outputs::Outputs;
use super::pool::Pool;
use crate::dispatch::{Action, Event, GroupId, PolicyKind, PoolSettings, QueryId, Role};
use crate::error::Error;

/// Carries out `Encode`, `Decode` and `Forget`.
pub(super) fn note(action: Action, follow_up: &mut Vec<Event>) {
    match action {
        Action::Encode(group, _) => follow_up.push(Event::GroupFailed(group)),
        Action::Decode(recovery) => follow_up.push(Event::SlotFailed(recovery.group, recovery.query)),
        _ => {}
    }
}

/// What was decoded for a query.
pub(super) fn reconstruction(_group: GroupId, _query: QueryId) -> Option<(Arc<Outputs>, usize)> {
    None
}

/// The model that a job of this role runs, if the pool has one.
pub(super) fn model(pool: &Pool, role: Role) -> Option<&ModelRef> {
    match role {
        Role::Deployed | Role::Copy => Some(&pool.model),
        Role::Parity(..) | Role::Backup => None,
    }
}

/// Whether a policy mixes queries, so that their values matter.
pub(super) fn mixes(policy: PolicyKind) -> bool {
    match policy {
        PolicyKind::None
        | PolicyKind::Equal
        | PolicyKind::Replicate
        | PolicyKind::Hedge
        | PolicyKind::ApproximateBackup => false,
        PolicyKind::Parm | PolicyKind::ParmPlus => true,
    }
}

/// Refuses the policies that need a code or a backup model, as none can be loaded here yet: a policy that quietly did less
/// than it says would be worse than none. The simulator runs them all.
pub(super) fn check(settings: &PoolSettings) -> Result<(), Error> {
    match settings.policy {
        PolicyKind::None | PolicyKind::Equal | PolicyKind::Replicate | PolicyKind::Hedge => Ok(()),
        PolicyKind::Parm | PolicyKind::ParmPlus | PolicyKind::ApproximateBackup => Err(Error::BadSettings {
            reason: "policies parm, parm+ and approximate-backup cannot serve yet, only be simulated: choose none, \
                     equal, replicate or hedge"
                .into(),
        }),
    }
}
