//! Stretches of time in which something holds for one instance: known as far as anybody looked.

use std::collections::VecDeque;

use crate::clock::Moment;

/// What holds for an instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Runs take this many times as long.
    Slow(f64),
    /// No progress.
    Hung,
    /// Cut off.
    Cut,
    /// Gone.
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
    /// All that begins before this moment is in `spans`.
    known_until: Moment,
}

impl Spans {
    /// What holds at a moment, and until when: until then nothing changes that is known.
    pub(crate) fn look(&self, at: Moment) -> (Option<Effect>, Moment) {
        match self.spans.iter().find(|span| span.to > at) {
            Some(span) if span.from <= at => (Some(span.effect), span.to),
            Some(span) => (None, span.from),
            None => (None, self.known_until),
        }
    }

    /// The first span with this effect that begins at or after a moment.
    pub(crate) fn next(&self, effect: Effect, at: Moment) -> Option<Span> {
        self.spans.iter().find(|span| span.effect == effect && span.from >= at).copied()
    }

    pub(crate) fn knows(&self, at: Moment) -> bool {
        self.known_until > at
    }

    /// Whether what holds at a moment, and until when, does not depend on how far anybody looked.
    pub(crate) fn settles(&self, at: Moment) -> bool {
        self.known_until == Moment::NEVER || self.spans.back().is_some_and(|span| span.to > at)
    }

    pub(crate) fn push(&mut self, span: Span) {
        if span.to > span.from {
            self.spans.push_back(span);
        }
        self.known_until = self.known_until.max(span.to);
    }

    /// Nothing more begins before this moment.
    pub(crate) fn known(&mut self, until: Moment) {
        self.known_until = self.known_until.max(until);
    }

    /// Lets go of what is over.
    pub(crate) fn forget(&mut self, before: Moment) {
        while self.spans.front().is_some_and(|span| span.to <= before) {
            self.spans.pop_front();
        }
    }
}
