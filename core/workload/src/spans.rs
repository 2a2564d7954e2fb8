//! Spans: stretches of time in which an effect applies to one instance, known up to a moment.

use std::collections::VecDeque;

use crate::clock::Moment;

/// An effect on an instance.
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
    pub(crate) from: Moment,
    pub(crate) to: Moment,
    pub(crate) effect: Effect,
}

/// The spans of one fault on one instance, in order and apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    spans: VecDeque<Span>,
    /// All spans that begin before this moment are in `spans`.
    known_until: Moment,
}

impl Spans {
    /// Returns the effect at a moment, and until when it is known not to change.
    pub(crate) fn look(&self, at: Moment) -> (Option<Effect>, Moment) {
        match self.spans.iter().find(|span| span.to > at) {
            Some(span) if span.from <= at => (Some(span.effect), span.to),
            Some(span) => (None, span.from),
            None => (None, self.known_until),
        }
    }

    /// Returns the first span with this effect that begins at or after a moment.
    pub(crate) fn next(&self, effect: Effect, at: Moment) -> Option<Span> {
        self.spans.iter().find(|span| span.effect == effect && span.from >= at).copied()
    }

    pub(crate) fn knows(&self, at: Moment) -> bool {
        self.known_until > at
    }

    /// Whether enough spans are known that the effect at a moment, and its end, are final.
    pub(crate) fn settles(&self, at: Moment) -> bool {
        self.known_until == Moment::NEVER || self.spans.back().is_some_and(|span| span.to > at)
    }

    pub(crate) fn push(&mut self, span: Span) {
        if span.to > span.from {
            self.spans.push_back(span);
        }
        self.known_until = self.known_until.max(span.to);
    }

    /// Records that no further span begins before this moment.
    pub(crate) fn known(&mut self, until: Moment) {
        self.known_until = self.known_until.max(until);
    }

    /// Discards spans that are over.
    pub(crate) fn forget(&mut self, before: Moment) {
        while self.spans.front().is_some_and(|span| span.to <= before) {
            self.spans.pop_front();
        }
    }
}
