//! Shuffles: pairs of instances that transfer data to each other, like the tasks of an analytics job.
//!
//! The number of concurrent transfers is constant: when one ends, another pair is drawn. The transfers on a link share it
//! evenly, so a transfer gets the smaller of its two shares, and its length depends on the others. All instances are
//! therefore simulated together, transfer by transfer, and each instance's spans follow the number of transfers on its
//! link: each slows queries to it down.

use crate::fault::Place;
use crate::spans::{Effect, Span, Spans};
use parm_durations::Time;
use parm_random::Random;

#[derive(Clone, Debug)]
pub(crate) struct Shuffles {
    size: Size,
    /// What one transfer adds to the factor on service times.
    each: f64,
    draw: Random,
    now: Time,
    /// Earlier moments are not requested.
    past: Time,
    transfers: Vec<Transfer>,
    links: Vec<Link>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) min_mb: f64,
    pub(crate) max_mb: f64,
    pub(crate) link_mbps: f64,
}

#[derive(Clone, Debug)]
struct Transfer {
    pair: [usize; 2],
    /// Nanoseconds that it would need with links of its own.
    left: f64,
}

#[derive(Clone, Debug, Default)]
struct Link {
    transfers: u32,
    since: Time,
    spans: Spans,
}

impl Shuffles {
    pub(crate) fn new(concurrent: u32, size: Size, factor: f64, place: Place) -> Self {
        let links = vec![Link::default(); place.instances as usize];
        let draw = Random::of(place.seed, [PAIRS, place.index as u64]);
        let transfers = Vec::with_capacity(concurrent as usize);
        let mut shuffles =
            Self { size, each: factor - 1.0, draw, now: Time::ZERO, past: Time::ZERO, transfers, links };
        // A transfer needs two instances.
        if place.instances >= 2 {
            (0..concurrent).for_each(|_| shuffles.begin());
        }
        shuffles
    }

    /// The spans of one instance, known beyond this moment.
    pub(crate) fn spans(&mut self, instance: u32, beyond: Time) -> &Spans {
        while !self.links[instance as usize].spans.settles(beyond) {
            self.step();
        }
        &self.links[instance as usize].spans
    }

    /// Discards the spans that are over; those of the other instances too, if there are many.
    pub(crate) fn forget(&mut self, instance: u32, before: Time) {
        self.links[instance as usize].spans.forget(before);
        self.past = before;
    }

    /// Continues to the end of the next transfer.
    fn step(&mut self) {
        let next = (0..self.transfers.len()).map(|index| (self.needs(index), index));
        let Some((needs, ended)) = next.min_by(|a, b| a.0.total_cmp(&b.0)) else {
            self.links.iter_mut().for_each(|link| link.spans.known(Time::MAX));
            return;
        };
        for index in 0..self.transfers.len() {
            let share = self.share(index);
            self.transfers[index].left -= needs * share;
        }
        self.now = self.now.later(needs.max(1.0));
        let Transfer { pair, .. } = self.transfers.swap_remove(ended);
        pair.into_iter().for_each(|end| self.change(end, -1));
        self.begin();
        let (now, past, each) = (self.now, self.past, self.each);
        for link in &mut self.links {
            link.spans.forget(past);
            link.note(now, each);
        }
    }

    /// Starts a transfer between two instances.
    fn begin(&mut self) {
        let first = self.draw.below(self.links.len());
        let second = (first + 1 + self.draw.below(self.links.len() - 1)) % self.links.len();
        let Size { min_mb, max_mb, link_mbps } = self.size;
        let megabits = 8.0 * (min_mb + (max_mb - min_mb) * self.draw.uniform());
        self.transfers.push(Transfer { pair: [first, second], left: megabits / link_mbps * 1e9 });
        [first, second].into_iter().for_each(|end| self.change(end, 1));
    }

    /// Changes the number of transfers on a link from now on.
    fn change(&mut self, end: usize, by: i32) {
        let (now, each) = (self.now, self.each);
        let link = &mut self.links[end];
        link.note(now, each);
        link.transfers = link.transfers.saturating_add_signed(by);
    }

    /// The share of a link's bandwidth that a transfer gets.
    fn share(&self, transfer: usize) -> f64 {
        let busiest = self.transfers[transfer].pair.map(|end| self.links[end].transfers).into_iter().max();
        1.0 / f64::from(busiest.unwrap_or(1).max(1))
    }

    /// Nanoseconds to a transfer's end if nothing changes.
    fn needs(&self, transfer: usize) -> f64 {
        self.transfers[transfer].left / self.share(transfer)
    }
}

impl Link {
    /// Records the effect until now.
    fn note(&mut self, now: Time, each: f64) {
        if self.transfers > 0 && each > 0.0 {
            let effect = Effect::Slow(1.0 + each * f64::from(self.transfers));
            self.spans.push(Span { from: self.since, to: now, effect });
        }
        self.spans.known(now);
        self.since = now;
    }
}

const PAIRS: u64 = 0x005A_FF1E;

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffles(concurrent: u32, instances: u32) -> Shuffles {
        let size = Size { min_mb: 128.0, max_mb: 256.0, link_mbps: 1000.0 };
        Shuffles::new(concurrent, size, 2.0, Place { seed: 3, index: 0, instances })
    }

    fn factor(shuffles: &mut Shuffles, instance: u32, at: Time) -> f64 {
        match shuffles.spans(instance, at).look(at).0 {
            Some(Effect::Slow(factor)) => factor,
            _ => 1.0,
        }
    }

    #[test]
    fn every_transfer_slows_two_instances() {
        let mut shuffles = shuffles(4, 18);
        for second in 0..500 {
            let at = Time::from_nanos(second * 1_000_000_000 + 7);
            let added: f64 = (0..18).map(|instance| factor(&mut shuffles, instance, at) - 1.0).sum();
            assert_eq!(added, 8.0, "at {second} s");
        }
    }

    #[test]
    fn transfers_share_the_bandwidth_of_a_link() {
        // Two instances, so every transfer is on the same two links: n transfers take n times as long each, and as many
        // end per second as with one.
        let ended = |concurrent| {
            let mut shuffles = shuffles(concurrent, 2);
            let mut steps = 0;
            while shuffles.now < Time::from_nanos(1_000_000_000_000) {
                shuffles.step();
                steps += 1;
            }
            f64::from(steps)
        };
        // 192 MB on average at 1 Gbit/s: 1.536 s.
        let alone = 1000.0 / 1.536;
        assert!((ended(1) / alone - 1.0).abs() < 0.05);
        assert!((ended(5) / alone - 1.0).abs() < 0.05);
    }
}
