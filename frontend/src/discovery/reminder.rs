//! Says again what is wrong with instances, for as long as it is.
//!
//! Each instance's own troubles are logged when they begin; hours later nobody finds that line. One line at an interval,
//! however many instances there are, says how many do not serve and gives the first one's reason.

use std::sync::Weak;
use std::time::Duration;

use super::fleet::Fleet;
use super::member::MemberState;

/// Between two reminders.
const EVERY: Duration = Duration::from_secs(30);

/// Reminds until the fleet is gone.
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
                Some((&member.name, reason))
            })
            .collect();
        if let Some((instance, reason)) = troubled.first() {
            tracing::warn!(
                unusable = troubled.len(),
                of = members.len(),
                first = %instance,
                %reason,
                "instances are still not usable"
            );
        }
    }
}
