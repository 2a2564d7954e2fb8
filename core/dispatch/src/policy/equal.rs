//! `equal`: no redundancy, with as many instances as a redundancy policy would use.
//!
//! The dispatcher does the same as under `none`; the operator starts more instances. The name marks the fair
//! baseline: it gets the resources that redundancy costs.

use super::hooks::Policy;

pub(crate) struct Equal;

impl Policy for Equal {
    /// As in the paper, which compares with it.
    fn takes_turns(&self) -> bool {
        true
    }
}
