//! Round robin: nginx without a directive, and the default of Envoy, gRPC's `round_robin` and most service meshes.
//!
//! Each client begins at a server of its own, because clients that start together would otherwise march in step.

use parm_workload::Random;

use super::{Rule, View};

pub(super) struct RoundRobin {
    servers: usize,
    next: usize,
}

impl RoundRobin {
    pub(super) fn new(servers: usize, draw: &mut Random) -> Self {
        Self { servers, next: draw.below(servers) }
    }
}

impl Rule for RoundRobin {
    fn pick(&mut self, _: &mut View<'_>) -> usize {
        self.next = (self.next + 1) % self.servers;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::view;
    use super::*;

    #[test]
    fn servers_take_turns() {
        let mut draw = Random::of(1, [0]);
        let mut rule = RoundRobin { servers: 3, next: 1 };
        let picks = [(); 5].map(|()| rule.pick(&mut view(0, &[9, 0, 0], &mut draw)));
        assert_eq!(picks, [2, 0, 1, 2, 0], "busy or not");
    }
}
