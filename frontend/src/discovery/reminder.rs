//! Repeats warnings about unusable instances for as long as they are unusable.
//!
//! Each problem is logged when it begins, and is hard to find hours later. One line per interval says how many
//! instances do not serve, with the first one's reason.

use std::sync::Weak;
use std::time::Duration;

use super::fleet::Fleet;
use super::member::MemberState;

/// Interval between reminders.
const EVERY: Duration = Duration::from_secs(30);

/// Repeats until the fleet is gone.
pub(super) async fn run(fleet: Weak<Fleet>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(fleet) = fleet.upgrade() else { return };
        let members = fleet.members();
        let troubled: Vec<_> = members
            .iter()
            .filter_map(|member| {
                let view = member.view();
                let reason = view
                    .problem
                    .filter(|_| matches!(view.state, MemberState::Connecting | MemberState::Refused))?;
                Some((&member.name, view.state, reason))
            })
            .collect();
        if let Some((instance, state, reason)) = troubled.first() {
            tracing::warn!(
                code = %state.code(),
                unusable = troubled.len(),
                of = members.len(),
                first = %instance,
                %reason,
                "instances are still unusable"
            );
        }
    }
}
