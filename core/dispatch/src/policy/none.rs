//! No redundancy: a slow instance makes its queries slow.

use super::Policy;

pub(super) struct None;

impl Policy for None {
    fn gives_ahead(&self) -> bool {
        true
    }
}
