//! Plan of a run: its servers, settings and events, drawn from a seed.

use std::fmt;

use parm_settings::PolicyKind;
use serde_json::{Value, json};

use crate::dice::Dice;

/// Milliseconds until all faults are removed.
const LENGTH: u64 = 20_000;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) servers: usize,
    /// Whether servers are reached over HTTP/2.
    pub(super) over_http2: bool,
    pub(super) policy: PolicyKind,
    pub(super) concurrency: u16,
    /// Streams that a server takes on one connection of HTTP/2.
    pub(super) streams: u32,
    /// Times in milliseconds, in order, with their events.
    pub(super) events: Vec<(u64, Event)>,
    pub(super) length: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Send(Errand),
    Mood(usize, Mood),
    /// A merge patch of the settings of one route, or of all.
    Settings(Option<&'static str>, Value),
    /// An order of the admin API about a server.
    Order(usize, &'static str),
    Remove(usize),
    Add(usize),
}

/// Behaviour of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    /// Slower by this factor.
    Slow(u64),
    /// Healthy, but never answers a request.
    Hung,
    /// Answers nothing until it is well.
    Paused,
    /// Refuses connections, and broke those that it had.
    Gone,
    /// Answers every request with this status, with `Retry-After` or without.
    Fails(u16, bool),
    /// Breaks the connection instead of an answer.
    Breaks,
    /// Breaks its answers after so many pieces.
    Cuts(usize),
    /// Pauses for ever after so many pieces.
    Stalls(usize),
    /// Its health check fails, and its requests too.
    NotReady,
}

/// A request of a client.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    pub(super) route: Route,
    pub(super) form: Form,
    pub(super) pieces: usize,
    /// Bytes of padding in a piece.
    pub(super) padding: usize,
    /// Milliseconds between two pieces.
    pub(super) pause: u64,
    /// Milliseconds until the answer must begin.
    pub(super) timeout: u64,
    /// Milliseconds after which the client leaves.
    pub(super) patience: Option<u64>,
    /// Milliseconds for which the client waits before it reads a piece.
    pub(super) slowness: u64,
    pub(super) line: Line,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Chat,
    Predict,
    /// A route of the operator that must run once.
    Declared,
    /// A request without a route.
    Other,
    Read,
    /// A gRPC call.
    Call,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    Chunks,
    Events,
    Lines,
    Bytes,
    /// Those of gRPC, with a status at the end.
    Messages,
}

/// The client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Http1,
    Http2,
    /// One of HTTP/2 with a window of a kilobyte.
    Narrow,
    /// A connection of HTTP/2 with other clients.
    Shared,
}

impl Route {
    /// Those of every server.
    pub(super) const ALL: [Self; 5] = [Self::Chat, Self::Predict, Self::Declared, Self::Other, Self::Read];

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Predict => "/predict",
            Self::Declared => "/declared",
            Self::Other => "/v1/files",
            Self::Read => "/v1/models",
            Self::Call => "/test.Service/Ask",
        }
    }

    /// Whether the configuration says how long an answer may pause. Otherwise it may for a minute.
    pub(super) fn has_own_stall(self) -> bool {
        matches!(self, Self::Chat | Self::Predict | Self::Declared | Self::Call)
    }

    pub(super) fn is_once(self) -> bool {
        matches!(self, Self::Declared | Self::Other)
    }
}

impl Form {
    /// Whether parm waits for the end of an answer.
    fn is_collected(self) -> bool {
        matches!(self, Self::Whole | Self::Chunks)
    }
}

impl Errand {
    /// One that every server answers.
    pub(super) fn plain(route: Route) -> Self {
        Self {
            route,
            form: Form::Whole,
            pieces: 1,
            padding: 0,
            pause: 0,
            timeout: 4000,
            patience: None,
            slowness: 0,
            line: Line::Http1,
        }
    }

    /// A stream that lasts for a second.
    pub(super) fn lasting(route: Route, line: Line) -> Self {
        Self { form: Form::Events, pieces: 20, pause: 50, line, ..Self::plain(route) }
    }

    fn of(dice: &mut Dice, over_http2: bool) -> Self {
        let plain = Self::drawn(dice);
        if !over_http2 || !dice.percent(20) {
            return plain;
        }
        let line = if plain.line == Line::Http1 { Line::Http2 } else { plain.line };
        Self { route: Route::Call, form: Form::Messages, line, ..plain }
    }

    fn drawn(dice: &mut Dice) -> Self {
        let is_large = dice.percent(8);
        let line = dice.pick(&[Line::Http1, Line::Http1, Line::Http2, Line::Narrow, Line::Shared]);
        // A large answer through a narrow window lasts long enough.
        let is_slow = dice.percent(10) && !(is_large && line == Line::Narrow);
        let form =
            dice.pick(&[Form::Whole, Form::Chunks, Form::Events, Form::Events, Form::Lines, Form::Bytes]);
        Self {
            route: dice.pick(&[
                Route::Chat,
                Route::Chat,
                Route::Predict,
                Route::Predict,
                Route::Declared,
                Route::Other,
                Route::Read,
            ]),
            form,
            pieces: dice.range(1, 7) as usize,
            padding: if is_large { 64 << 10 } else { 0 },
            // A whole answer lasts about as long as its work, which differs little within a route.
            pause: if form.is_collected() { dice.pick(&[0, 3]) } else { dice.pick(&[0, 3, 20, 60]) },
            timeout: dice.pick(&[300, 1000, 2000, 4000]),
            patience: dice.percent(15).then(|| dice.range(1, 300)),
            slowness: if is_slow { dice.range(20, 300) } else { 0 },
            line,
        }
    }
}

impl Mood {
    fn of(dice: &mut Dice) -> Self {
        match dice.range(0, 12) {
            0 => Self::Slow(dice.pick(&[3, 10, 40])),
            1 => Self::Hung,
            2 => Self::Paused,
            3 | 4 => Self::Gone,
            5 => Self::Fails(dice.pick(&[500, 502, 503, 501, 400]), false),
            6 => Self::Fails(dice.pick(&[429, 503]), dice.percent(50)),
            7 => Self::Breaks,
            8 | 9 => Self::Cuts(dice.range(0, 4) as usize),
            10 => Self::Stalls(dice.range(0, 4) as usize),
            _ => Self::NotReady,
        }
    }
}

impl Plan {
    pub(super) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x0F0F);
        let policies = [
            PolicyKind::None,
            PolicyKind::Equal,
            PolicyKind::Hedge,
            PolicyKind::Hedge,
            PolicyKind::Replicate,
        ];
        let servers = dice.range(2, 5) as usize;
        let mut plan = Self {
            seed,
            servers,
            over_http2: dice.percent(40),
            policy: dice.pick(&policies),
            concurrency: dice.pick(&[4, 8, 256]),
            streams: dice.pick(&[1, 3, 100]),
            events: Vec::new(),
            length: LENGTH,
        };
        let gap = dice.pick(&[20, 60, 150]);
        let mut at = 0;
        while at < LENGTH {
            at += dice.range(1, 2 * gap);
            plan.events.push((at, Event::Send(Errand::of(&mut dice, plan.over_http2))));
        }
        plan.draw_faults(&mut dice);
        let changes = dice.range(0, 8);
        for _ in 0..changes {
            let route = dice.pick(&[None, None, Some("chat"), Some("predict"), Some("declared")]);
            let patch = if dice.percent(50) {
                json!({ "policy": dice.pick(&policies) })
            } else {
                dice.pick(&patches())
            };
            plan.events.push((dice.range(0, LENGTH), Event::Settings(route, patch)));
        }
        plan.events.sort_by_key(|(at, _)| *at);
        plan
    }

    /// Whether every policy of the run sends copies.
    pub(super) fn hedges(&self) -> bool {
        let sends = |policy: PolicyKind| matches!(policy, PolicyKind::Hedge | PolicyKind::Replicate);
        let changes = self.events.iter().all(|(_, event)| match event {
            Event::Settings(_, patch) => {
                let policy = patch.get("policy").cloned().map(serde_json::from_value);
                policy.is_none_or(|policy| policy.is_ok_and(sends))
            }
            _ => true,
        });
        sends(self.policy) && changes
    }

    fn draw_faults(&mut self, dice: &mut Dice) {
        // Some servers stay well in half of the plans, so that no failure has an excuse.
        let faulty = if dice.percent(50) { self.servers } else { self.servers - 1 };
        let faults = dice.range(2, 14);
        for _ in 0..faults {
            let server = dice.range(0, faulty as u64) as usize;
            let from = dice.range(500, LENGTH - 500);
            let until = (from + dice.pick(&[50, 300, 1500, 5000])).min(LENGTH);
            match dice.range(0, 10) {
                0 => {
                    let order = dice.pick(&["drain", "eject"]);
                    self.events.push((from, Event::Order(server, order)));
                    self.events.push((until, Event::Order(server, "undrain")));
                }
                1 => {
                    self.events.push((from, Event::Remove(server)));
                    self.events.push((until, Event::Add(server)));
                }
                _ => {
                    self.events.push((from, Event::Mood(server, Mood::of(dice))));
                    self.events.push((until, Event::Mood(server, Mood::Well)));
                }
            }
        }
    }
}

/// Changes of settings that must not matter to requests whose bodies are not read.
fn patches() -> Vec<Value> {
    vec![
        json!({ "batch": { "max_size": 8 } }),
        json!({ "batch": { "max_size": 1 } }),
        json!({ "queue_limit": 100 }),
        json!({ "placement": "turns" }),
        json!({ "placement": "speed" }),
        json!({ "policy": "parm" }),
        json!({ "policy": "parm+" }),
        json!({ "policy": "stand-in" }),
        json!({ "policy": "approximate-backup", "backup_model": "predict" }),
        json!({ "coding": { "code": "mds", "k": 3 } }),
        json!({ "hedge": { "budget": { "ratio": 0.5 } } }),
        json!({ "ejection": { "failures": 1 } }),
        json!({ "no_instance_grace_ms": 0 }),
        json!({ "default_answer": true }),
    ]
}

/// Without the requests, which are many.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { servers, over_http2, streams, policy, concurrency, .. } = self;
        writeln!(
            f,
            "{servers} servers, HTTP/2: {over_http2} with {streams} streams, {policy:?}, {concurrency} at a time"
        )?;
        let changes = self.events.iter().filter(|(_, event)| !matches!(event, Event::Send(_)));
        changes.into_iter().try_for_each(|(at, event)| writeln!(f, "{at:>6} ms  {event:?}"))
    }
}
