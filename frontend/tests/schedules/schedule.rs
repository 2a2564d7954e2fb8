//! Schedule: the initial state and the events, as data to replay.

use parm_settings::PoolSettings;
use serde_json::Value;

use crate::opaque::Errand;

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) seed: u64,
    pub(crate) setup: Setup,
    /// Ordered by time.
    pub(crate) events: Vec<Event>,
    /// Milliseconds until all faults are removed.
    pub(crate) length: u64,
}

/// The initial state.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) workers: Vec<Worker>,
    pub(crate) settings: PoolSettings,
}

/// A server, and the source that lists it.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) source: Source,
    pub(crate) models: Vec<Serving>,
    /// Minimum and maximum milliseconds of a job.
    pub(crate) pace: (u64, u64),
    /// Milliseconds of a request about its models.
    pub(crate) question: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Static,
    File,
    Dns,
    /// The settings of upstream servers. Such a server has no models.
    Upstream,
}

/// A model at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Serving {
    pub(crate) model: Model,
    pub(crate) version: u8,
    /// Numbers in a row.
    pub(crate) width: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Model {
    /// One with clients.
    Asked(u8),
    /// The backup model.
    Cheap,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Milliseconds from the start.
    pub(crate) at: u64,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Ask(Ask),
    /// A request for upstream servers.
    Forward(Errand),
    /// A server behaves like this from now on.
    Temper(usize, Temper),
    /// A server rejects its next job as overloaded.
    Blip(usize),
    /// A server has these models from now on.
    Serve(usize, Vec<Serving>),
    /// The file lists these; with two numbers, first only this percentage of it for this many milliseconds.
    File(Vec<usize>, Option<(u64, u64)>),
    /// The name has these servers; an error if there are none.
    Dns(Vec<usize>),
    /// A merge patch of a model's settings, or of the default ones.
    Settings(Option<u8>, Value),
    Load(u8),
    Unload(u8),
    /// The workers file does not exist for this many milliseconds.
    NoFile(u64),
    /// One answer of the name server lacks a member.
    ShortAnswer,
}

/// Behaviour of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Temper {
    Well,
    /// Slower by this factor.
    Slow(u64),
    /// Ready, but never answers a job.
    Hung,
    /// Answers nothing at all.
    Deaf,
    /// Fails every job.
    Failing,
    /// Fails every job of one model.
    FailingOne(u8),
    /// Answers wrongly.
    Wrong,
    /// Answers with a row too few.
    Short,
    /// Answers requests for upstream servers with this status.
    Fails(u16),
    /// Breaks the answers to such requests after so many pieces.
    Cuts(usize),
    /// Pauses for ever after so many pieces of such an answer.
    Stalls(usize),
    /// Reports that it is not ready.
    NotReady,
    /// Refuses connections.
    Gone,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) model: u8,
    pub(crate) version: Option<u8>,
    pub(crate) rows: Vec<Guilt>,
    /// Milliseconds.
    pub(crate) timeout: Option<u64>,
    pub(crate) exact: bool,
    /// Thousandths of its account's answers that may be approximate.
    pub(crate) share: Option<u16>,
    pub(crate) priority: u8,
    /// A parameter for the model, which adds it to its answer.
    pub(crate) bias: Option<u8>,
    /// A parameter of output `y`, which is shifted by it.
    pub(crate) shift: Option<u8>,
    pub(crate) wanted: Wanted,
    /// Milliseconds after which the client goes away.
    pub(crate) patience: Option<u64>,
    /// Milliseconds for which the client does not poll after sending.
    pub(crate) asleep: Option<u64>,
}

/// Effect of a row on the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guilt {
    Good,
    /// Every instance rejects it as malformed.
    Bad,
    /// Every instance fails on it, as if by its own fault.
    Poison,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    Y,
    Z,
}

impl Model {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Asked(number) => format!("m{number}"),
            Self::Cheap => "cheap".into(),
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        let asked = name.strip_prefix('m').and_then(|number| number.parse().ok()).map(Self::Asked);
        asked.or_else(|| (name == "cheap").then_some(Self::Cheap))
    }
}

impl Ask {
    /// A request of one good row with usual terms.
    pub(crate) fn good(model: u8) -> Self {
        Self {
            model,
            version: None,
            rows: vec![Guilt::Good],
            timeout: None,
            exact: false,
            share: None,
            priority: 0,
            bias: None,
            shift: None,
            wanted: Wanted::All,
            patience: None,
            asleep: None,
        }
    }
}

/// The address of a server; two of them are on one node.
pub(crate) fn host(worker: usize) -> String {
    format!("h{}:{worker}", worker / 2)
}

pub(crate) fn address(worker: usize, source: Source) -> String {
    let scheme = if source == Source::Upstream { "upstream+http" } else { "test" };
    format!("{scheme}://{}", host(worker))
}
