//! When an effect applies to one instance: spans of time that are known up to a moment, the episodes of an intermittent fault,
//! which are computed as far as they are requested, and the pace of a measured series of factors.

use std::collections::VecDeque;
use std::time::Duration;

use crate::When;
use parm_durations::Time;
use parm_random::Random;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Runs take this many times as long.
    Slow(f64),
    /// It makes no progress.
    Hung,
    /// It is unreachable.
    Cut,
    /// It is down.
    Down,
    /// This share of the answers is wrong.
    Wrong(f64),
}

/// A stretch of time; the end is not part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) from: Time,
    pub(crate) to: Time,
    pub(crate) effect: Effect,
}

/// The spans of one fault on one instance, in order and apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    spans: VecDeque<Span>,
    /// All spans that begin before this moment are in `spans`.
    known_until: Time,
}

impl Spans {
    /// Returns the effect at a moment, and until when it is known not to change.
    pub(crate) fn look(&self, at: Time) -> (Option<Effect>, Time) {
        match self.spans.iter().find(|span| span.to > at) {
            Some(span) if span.from <= at => (Some(span.effect), span.to),
            Some(span) => (None, span.from),
            None => (None, self.known_until),
        }
    }

    /// Returns the first span with this effect that begins at or after a moment.
    pub(crate) fn next(&self, effect: Effect, at: Time) -> Option<Span> {
        self.spans.iter().find(|span| span.effect == effect && span.from >= at).copied()
    }

    pub(crate) fn knows(&self, at: Time) -> bool {
        self.known_until > at
    }

    /// Whether enough spans are known that the effect at a moment, and its end, are final.
    pub(crate) fn settles(&self, at: Time) -> bool {
        self.known_until == Time::MAX || self.spans.back().is_some_and(|span| span.to > at)
    }

    pub(crate) fn push(&mut self, span: Span) {
        if span.to > span.from {
            self.spans.push_back(span);
        }
        self.known_until = self.known_until.max(span.to);
    }

    /// Records that no further span begins before this moment.
    pub(crate) fn known(&mut self, until: Time) {
        self.known_until = self.known_until.max(until);
    }

    pub(crate) fn forget(&mut self, before: Time) {
        while self.spans.front().is_some_and(|span| span.to <= before) {
            self.spans.pop_front();
        }
    }
}

/// One fault on one instance.
#[derive(Clone, Debug)]
pub(crate) struct Episodes {
    spans: Spans,
    when: When,
    stages: Stages,
    draw: Random,
    begun: bool,
    /// The start of the next pause or episode.
    at: Time,
}

/// The parts of an episode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stages {
    /// For the length of the episode.
    pub(crate) first: Effect,
    /// The effect after it: a crash's slow start.
    pub(crate) then: Option<(Effect, Duration)>,
}

impl Episodes {
    pub(crate) fn new(when: When, stages: Stages, draw: Random) -> Self {
        Self { spans: Spans::default(), when, stages, draw, begun: false, at: Time::ZERO }
    }

    /// The spans, known beyond this moment.
    pub(crate) fn spans(&mut self, beyond: Time) -> &Spans {
        while !self.spans.knows(beyond) {
            self.spin();
        }
        &self.spans
    }

    /// Whether the episodes are crashes.
    pub(crate) fn crashes(&self) -> bool {
        self.stages.first == Effect::Down
    }

    pub(crate) fn forget(&mut self, before: Time) {
        self.spans.forget(before);
    }

    /// Adds one more episode, or records that there is none.
    fn spin(&mut self) {
        let first = !std::mem::replace(&mut self.begun, true);
        match self.when {
            When::Always => self.until_never(),
            When::Once { at, length } if first => {
                self.episode(Time::ZERO + at, length);
            }
            When::Once { .. } => self.spans.known(Time::MAX),
            When::Every { at, every, length } => {
                let from = if first { Time::ZERO + at } else { self.at };
                self.episode(from, length);
                self.at = (from + every).max(self.at);
            }
            When::Episodes { share: 0.0, .. } => self.spans.known(Time::MAX),
            When::Episodes { share, length } => self.random(first, share, length),
        }
    }

    fn until_never(&mut self) {
        let span = Span { from: Time::ZERO, to: Time::MAX, effect: self.stages.first };
        self.spans.push(span);
    }

    /// In equilibrium: the probability that the run begins within an episode is the episodes' share of the time.
    fn random(&mut self, first: bool, share: f64, length: Duration) {
        if first && self.draw.uniform() < share {
            let left = length.mul_f64(self.draw.uniform());
            self.episode(Time::ZERO, left.max(Duration::from_nanos(1)));
            return;
        }
        let pause = length.as_nanos() as f64 * (1.0 - share) / share;
        let from = self.at.later(1.0 + pause * self.draw.exponential());
        self.episode(from, length);
    }

    fn episode(&mut self, from: Time, length: Duration) {
        let end = from + length;
        self.spans.push(Span { from, to: end, effect: self.stages.first });
        self.at = end;
        if let Some((effect, length)) = self.stages.then {
            self.at = end + length;
            self.spans.push(Span { from: end, to: self.at, effect });
        }
    }
}

/// A measured series of factors on one instance, replayed from the beginning when it ends.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    factors: Vec<f64>,
    /// Nanoseconds that a factor lasts.
    step: u64,
    /// All factors are the same.
    steady: bool,
}

impl Pace {
    /// Creates the pace; the series must not be empty.
    pub(crate) fn new(factors: Vec<f64>, step: Duration) -> Self {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        let steady = factors.iter().all(|factor| *factor == factors[0]);
        Self { factors, step, steady }
    }

    /// Returns the effect at a moment, and until when it does not change.
    pub(crate) fn look(&self, at: Time) -> (Option<Effect>, Time) {
        let number = at.as_nanos() / self.step;
        let factor = self.factors[(number % self.factors.len() as u64) as usize];
        let end = if self.steady { u64::MAX } else { (number + 1).saturating_mul(self.step) };
        (Some(Effect::Slow(factor)), Time::from_nanos(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn episodes(when: When, seed: u64) -> Episodes {
        let stages = Stages { first: Effect::Slow(5.0), then: None };
        Episodes::new(when, stages, Random::of(seed, [0]))
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn random_episodes_take_their_share_from_the_start() {
        let when = When::Episodes { share: 1.0 / 12.0, length: 2000 * MS };
        // Over many instances at one early moment, and over one instance's long run.
        let early =
            (0..6000).filter(|seed| episodes(when.clone(), *seed).spans(at(700)).look(at(700)).0.is_some());
        let early = early.count() as f64 / 6000.0;
        let mut one = episodes(when, 1);
        let late = (0..60_000).filter(|s| one.spans(at(s * 1000)).look(at(s * 1000)).0.is_some());
        let late = late.count() as f64 / 60_000.0;
        assert!((early * 12.0 - 1.0).abs() < 0.15 && (late * 12.0 - 1.0).abs() < 0.1, "{early} {late}");
    }

    #[test]
    fn planned_episodes_occur_at_their_times() {
        let mut every = episodes(When::Every { at: 100 * MS, every: 1000 * MS, length: 10 * MS }, 1);
        let holds = [99, 100, 109, 110, 1099, 1105, 5105, 5110]
            .map(|ms| every.spans(at(ms)).look(at(ms)).0.is_some());
        assert_eq!(holds, [false, true, true, false, false, true, true, false]);
        let mut once = episodes(When::Once { at: 5 * MS, length: 5 * MS }, 1);
        assert_eq!(once.spans(at(5)).look(at(5)), (Some(Effect::Slow(5.0)), at(10)));
        assert_eq!(once.spans(at(10)).look(at(10)), (None, Time::MAX));
        let mut always = episodes(When::Always, 1);
        assert_eq!(always.spans(at(9)).look(at(9)), (Some(Effect::Slow(5.0)), Time::MAX));
    }

    #[test]
    fn series_is_replayed_step_by_step_from_the_beginning_again() {
        let pace = Pace::new(vec![1.0, 2.0, 4.0], Duration::from_millis(10));
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let slow = |factor, until| (Some(Effect::Slow(factor)), at(until));
        assert_eq!(pace.look(at(0)), slow(1.0, 10));
        assert_eq!(pace.look(at(19)), slow(2.0, 20));
        assert_eq!(pace.look(at(20)), slow(4.0, 30));
        assert_eq!(pace.look(at(35)), slow(1.0, 40));
        let steady = Pace::new(vec![2.4], Duration::from_millis(10));
        assert_eq!(steady.look(at(123)), (Some(Effect::Slow(2.4)), Time::MAX));
    }
}
