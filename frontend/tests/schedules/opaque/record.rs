//! Record of a run: requests, their runs at servers, and broken promises.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::plan::{Errand, Form, Mood};

#[derive(Default)]
pub(super) struct Record {
    pub(super) requests: Vec<Sent>,
    pub(super) runs: Vec<Run>,
    pub(super) servers: Vec<Known>,
    /// Whether late requests always have copies.
    pub(super) hedges: bool,
    pub(super) breaches: Vec<(&'static str, String)>,
}

pub(super) type Shared = Arc<Mutex<Record>>;

/// A request that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) errand: Errand,
    pub(super) at: Instant,
}

/// A request that a server read.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) request: usize,
    pub(super) server: usize,
    /// Whether the server was well from its beginning to its end.
    pub(super) well: bool,
    pub(super) open: bool,
}

/// State of a server.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) mood: Mood,
    /// Whether it is a member that no order keeps out of service.
    pub(super) member: bool,
    /// When its mood or membership last changed.
    pub(super) since: Instant,
    /// Since when each look found it out of service.
    pub(super) out_since: Option<Instant>,
}

impl Record {
    /// Notes a broken promise; the first of a kind counts.
    pub(super) fn breach(&mut self, rule: &'static str, what: impl FnOnce() -> String) {
        if !self.breaches.iter().any(|(known, _)| *known == rule) {
            self.breaches.push((rule, what()));
        }
    }

    /// A server behaves in another way, which its runs may notice.
    pub(super) fn becomes(&mut self, server: usize, mood: Mood) {
        let known = &mut self.servers[server];
        (known.mood, known.since) = (mood, Instant::now());
        self.runs.iter_mut().filter(|run| run.server == server && run.open).for_each(|run| run.well = false);
    }

    /// A server joins or leaves, by an order that breaks no answer.
    pub(super) fn joins(&mut self, server: usize, member: bool) {
        let known = &mut self.servers[server];
        (known.member, known.since) = (member, Instant::now());
    }

    pub(super) fn begins(&mut self, request: usize, server: usize) -> usize {
        let well = self.servers[server].mood == Mood::Well;
        self.runs.push(Run { request, server, well, open: true });
        self.runs.len() - 1
    }

    pub(super) fn runs_of(&self, request: usize) -> impl Iterator<Item = (usize, &Run)> {
        self.runs.iter().enumerate().filter(move |(_, run)| run.request == request)
    }

    /// The servers that have been well and members for so long.
    pub(super) fn steady(&self, at: Instant, settled: Duration) -> impl Iterator<Item = usize> {
        let is_steady = move |own: &Known| own.mood == Mood::Well && own.member && own.since + settled <= at;
        self.servers.iter().enumerate().filter(move |(_, own)| is_steady(own)).map(|(server, _)| server)
    }
}

/// The pieces of the answer that a run gives; no other run has an equal one.
pub(super) fn pieces(errand: &Errand, run: usize) -> Vec<Bytes> {
    let padding = "x".repeat(errand.padding);
    let piece = |number: usize| {
        let text = format!("{{\"run\":{run},\"piece\":{number},\"padding\":\"{padding}\"}}");
        let text = match errand.form {
            Form::Events => format!("data: {text}\n\n"),
            Form::Messages => {
                let length = u32::try_from(text.len()).expect("a short message").to_be_bytes();
                return [&[0][..], &length, text.as_bytes()].concat();
            }
            _ => format!("{text}\n"),
        };
        text.into_bytes()
    };
    let ping = (errand.form == Form::Events).then(|| Bytes::from(": ping\n\n"));
    ping.into_iter().chain((0..errand.pieces).map(|number| Bytes::from(piece(number)))).collect()
}
