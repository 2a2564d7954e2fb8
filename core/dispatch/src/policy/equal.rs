//! No redundancy, but all the resources: the instances that parities or copies would cost serve the deployed model too.
//!
//! The dispatcher does the same as under `none`; the difference is how many instances the operator starts. It has its
//! own name because it is the honest baseline: whatever redundancy costs, this gets too.

use super::Policy;

pub(super) struct Equal;

impl Policy for Equal {}
