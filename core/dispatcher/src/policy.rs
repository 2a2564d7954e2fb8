//! Policies: what differs between the ways to treat late queries, as data.
//!
//! A policy is a constant of [`Policy`]. To add one, add a constant here and a `PolicyKind` in core/settings. The compiler names two
//! matches: core/settings/src/model.rs (what the kind means) and frontend/src/serve/coding/plan.rs (what it needs). All others have a
//! silent default, such as hedge for routes, so search for `PolicyKind::` in core/settings, frontend/src/serve, src and lab/src: codes,
//! instances of its own, background, checks. Listed by hand: `PolicyKind::ALL`, src/cli/mod.rs, the demo, the tuner's space and
//! the experiments' legend (lab/src/tuner/space.rs, lab/src/experiments/cell.rs), lab/tests/it/promises.rs, frontend/page (controls.js,
//! CONTRACT.md, its test) and docs/policies.md. A policy that needs a new kind of work gets a field, which `step` reads in its facts.

/// How the queries of a model are treated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// How an instance is chosen.
    pub placement: Placement,
    /// Runs that each query gets at once.
    pub runs: u8,
    /// Whether a query may be sent again: after a failure, and if `hedge` is set, when it is late.
    pub repeats: bool,
    /// Whether a query gets a copy when that saves more time than it costs (`Books::copy_at`), if the budget has a token and few
    /// queries wait. Copies at slow instances for which no query waits do not depend on it (`explores`).
    pub hedge: bool,
    /// A query that is older than this many usual runs of its model takes an approximate answer; later as the bound on such answers
    /// fills. Copies do not depend on it: they start when they pay.
    pub late_factor: f64,
    /// Whether and when the model's stand-in answers.
    pub stand_in: Option<StandInPolicy>,
}

/// How an instance is chosen for a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Where the query is expected to end first.
    BySpeed,
    /// Idle instances take turns.
    InTurn,
}

/// When a stand-in answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StandInPolicy {
    /// The largest share of approximate answers in any minute.
    pub bound: f64,
    /// While more queries than this wait for each slot, late ones get no copies: the stand-in's answer comes sooner.
    pub hedge_below: f64,
    /// Whether it answers beyond the bound while the model's instances answer nothing.
    pub in_outage: bool,
    /// Whether it runs beside each query, which needs instances of its own; otherwise for late queries only.
    pub at_once: bool,
}

impl Policy {
    /// Whether copies of its queries show how fast an instance is, and whether one that is out of service works again.
    pub(crate) fn explores(&self) -> bool {
        self.repeats && self.placement == Placement::BySpeed
    }

    /// Placement by speed and retries. No query gets a copy; those at slow instances show only how these are (`explores`).
    pub const NONE: Policy = Policy {
        placement: Placement::BySpeed,
        runs: 1,
        repeats: true,
        hedge: false,
        late_factor: 1.15,
        stand_in: None,
    };
    /// No query runs twice: it is sent again only if the instance did not get it.
    pub const ONCE: Policy = Policy { repeats: false, ..Self::NONE };
    /// Idle instances take turns, whatever their speed.
    pub const EQUAL: Policy = Policy { placement: Placement::InTurn, ..Self::NONE };
    /// A query gets a copy when that saves more time than it costs.
    pub const HEDGE: Policy = Policy { hedge: true, ..Self::NONE };
    /// Each query runs twice.
    pub const REPLICATE: Policy = Policy { runs: 2, ..Self::NONE };
    /// A late query gets a stand-in's answer. It gets a copy if the answer has not come at twice that age, or may not be given.
    pub const STAND_IN: Policy = Policy {
        stand_in: Some(StandInPolicy { bound: 0.05, hedge_below: 0.2, in_outage: true, at_once: false }),
        ..Self::HEDGE
    };
    /// A stand-in on instances of its own runs each query and answers late ones: what parities are compared with at the same
    /// number of instances. Unlike a parity it runs every query, so it must be `k` times as cheap as the model.
    pub const APPROXIMATE_BACKUP: Policy = Policy {
        late_factor: 1.25,
        stand_in: Some(StandInPolicy { bound: 1.0, hedge_below: 1.0, in_outage: true, at_once: true }),
        ..Self::NONE
    };
    /// ParM as published: one of `k + 1` instances runs parities only, and the first of prediction and reconstruction answers. Above
    /// 0.7 of the capacity queries wait for `k` of `k + 1` instances while the others may idle, so use [`PARM_PLUS`](Self::PARM_PLUS).
    pub const PARM: Policy = Policy { late_factor: 0.0, ..Self::NONE };
    /// Parities run on idle instances, as background, and a reconstruction replaces late predictions only. Copies help the rest:
    /// members of open groups, losses beyond the code, and clients that take exact answers only.
    pub const PARM_PLUS: Policy = Policy { late_factor: 1.25, ..Self::HEDGE };
}
