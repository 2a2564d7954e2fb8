//! A server with a queue: so many runs at a time, the others wait in the order of arrival.

use std::collections::VecDeque;

/// One server.
pub(super) struct Server {
    pub(super) waiting: VecDeque<u64>,
    /// Those of `waiting` that were not withdrawn.
    pub(super) queued: u32,
    pub(super) running: u32,
    pub(super) latencies: Latencies,
}

impl Server {
    pub(super) fn new() -> Self {
        Self { waiting: VecDeque::new(), queued: 0, running: 0, latencies: Latencies::default() }
    }

    /// Requests that have arrived and have no answer.
    pub(super) fn in_flight(&self) -> u32 {
        self.queued + self.running
    }
}

/// Prequal's estimate: how long recent requests took that met as many others at the server as there are now.
#[derive(Default)]
pub(super) struct Latencies {
    /// Requests in flight at the arrival, and nanoseconds until the answer; the newest last.
    recent: VecDeque<(u32, u64)>,
}

const KEPT: usize = 64;
/// At most so many of the newest count.
const COUNTED: usize = 9;

impl Latencies {
    pub(super) fn add(&mut self, in_flight: u32, nanos: u64) {
        self.recent.push_back((in_flight, nanos));
        if self.recent.len() > KEPT {
            self.recent.pop_front();
        }
    }

    /// The median latency of those that met the nearest number of others; 0 if nothing is known.
    pub(super) fn at(&self, in_flight: u32) -> u64 {
        let distance = |seen: &(u32, u64)| seen.0.abs_diff(in_flight);
        let Some(nearest) = self.recent.iter().map(distance).min() else { return 0 };
        let near = self.recent.iter().rev().filter(|seen| distance(seen) == nearest);
        let mut nanos: Vec<u64> = near.map(|(_, nanos)| *nanos).take(COUNTED).collect();
        let middle = nanos.len() / 2;
        *nanos.select_nth_unstable(middle).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_is_the_median_at_the_nearest_number_of_requests() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.at(3), 0);
        for (in_flight, nanos) in [(0, 20), (0, 22), (0, 60), (4, 100)] {
            latencies.add(in_flight, nanos);
        }
        assert_eq!([0, 1, 3, 9].map(|in_flight| latencies.at(in_flight)), [22, 22, 100, 100]);
    }
}
