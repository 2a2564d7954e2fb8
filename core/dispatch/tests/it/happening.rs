//! Random events.

use parm_dispatch::{Accept, Failure, Judgement};
use parm_settings::{Cost, PolicyKind, PoolSettings};
use proptest::prelude::*;

use super::drawn_settings::settings;
use super::token_events::{Tokens, tokens};

/// A random event; numbers choose among what exists at that time.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    Arrival {
        pool: u32,
        shape: u32,
        within_ms: u64,
        priority: u8,
        share: Option<u32>,
        accept: Accept,
        codable: bool,
        size: u32,
    },
    /// A burst of this many queries like this one.
    Burst(usize, Box<Happening>),
    Cancel(usize),
    Completion(usize),
    Failing {
        job: usize,
        how: Failure,
    },
    Join(Joining),
    /// A known instance reports other slots and models.
    Rejoin(usize, Joining),
    Leave(usize),
    /// All instances leave.
    Desert,
    Drain(usize),
    ProbeAnswer {
        probe: usize,
        works: bool,
    },
    Encoding {
        group: usize,
        works: bool,
    },
    Decoding {
        slot: usize,
        outcome: Option<Option<f32>>,
    },
    Comparing {
        group: usize,
        agrees: bool,
    },
    Judging {
        answer: usize,
        judgement: Judgement,
    },
    Checking {
        pair: usize,
        agrees: Option<bool>,
    },
    Costing(Cost),
    Beside {
        instance: usize,
        jobs: u16,
        home: bool,
    },
    /// An instance offers, grants, shares, recalls or no longer gives tokens.
    Tokens(usize, Tokens),
    /// The lease in 100 us.
    Time(u64),
    Change(Box<PoolSettings>),
    /// Settings of which only a part takes effect.
    Force(Box<PoolSettings>, PolicyKind, u16, u32),
    /// A pool serves a new version of another one's model.
    Version(u32, u32),
    /// Time passes without a wake, in 100 us.
    Pause(u64),
    /// The model is unloaded; later queries for it find no instance until one joins with it again.
    Remove(u32),
}

/// The report of an instance that joins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joining {
    pub(crate) slots: u16,
    pub(crate) pools: u32,
    pub(crate) node: u32,
    /// Its slots are learned, up to those reported.
    pub(crate) learns: bool,
    /// It has nothing but the stand-ins.
    pub(crate) apart: bool,
    pub(crate) flags: u8,
    pub(crate) at_once: u16,
}

pub(crate) const POOLS: u32 = 3;
pub(crate) const SHARES: u32 = 2;

fn failure() -> impl Strategy<Value = Failure> {
    prop_oneof![
        2 => Just(Failure::Instance), 1 => Just(Failure::Unsent), 2 => Just(Failure::Model), 1 => Just(Failure::Query),
        1 => Just(Failure::Withheld),
    ]
}

/// Rows that cost as much together as alone, or little more than one.
fn cost() -> impl Strategy<Value = Cost> {
    (0.05..1.5f64, 0.0..1.0f64).prop_map(|(row, more)| Cost {
        rows: [1.0, 2.0, 4.0, 8.0].map(|rows| row * (1.0 + more * (rows - 1.0))),
    })
}

fn kind() -> impl Strategy<Value = PolicyKind> {
    use PolicyKind::{ApproximateBackup, Equal, Hedge, None, Once, Parm, ParmPlus, Replicate, StandIn};
    prop::sample::select(vec![
        ApproximateBackup,
        Equal,
        Hedge,
        None,
        Once,
        Parm,
        ParmPlus,
        Replicate,
        StandIn,
    ])
}

fn judgement() -> impl Strategy<Value = Judgement> {
    prop_oneof![
        4 => prop::option::of(0f32..1.0).prop_map(Judgement::Fit),
        1 => Just(Judgement::Unfit),
    ]
}

fn accept() -> impl Strategy<Value = Accept> {
    prop_oneof![7 => Just(Accept::Any), 2 => Just(Accept::Exact), 2 => prop::sample::select(vec![100, 500, 900]).prop_map(Accept::AtMost)]
}

fn arrival() -> impl Strategy<Value = Happening> {
    let size = prop_oneof![3 => Just(1), 1 => 1..5000u32];
    let plain = (prop::option::of(0..SHARES), prop::bool::weighted(0.9), size);
    (0..POOLS, 0..2u32, 0..300u64, 0..3u8, accept(), plain).prop_map(
        |(pool, shape, within_ms, priority, accept, (share, codable, size))| Happening::Arrival {
            pool,
            shape,
            within_ms,
            priority,
            share,
            accept,
            codable,
            size,
        },
    )
}

fn joining() -> impl Strategy<Value = Joining> {
    let fixed = (1..5u16, Just(false));
    let learned = (1..12u16, Just(true));
    let slots = prop_oneof![2 => fixed.boxed(), 1 => learned.boxed()];
    let apart = prop::bool::weighted(0.3);
    let flags = prop_oneof![2 => Just(15u8), 1 => 1..16u8];
    let at_once = prop_oneof![2 => Just(0u16), 1 => 1..4u16];
    (slots, 1..8u32, 0..3u32, apart, flags, at_once).prop_map(
        |((slots, learns), pools, node, apart, flags, at_once)| Joining {
            slots,
            pools,
            node,
            learns,
            apart,
            flags,
            at_once,
        },
    )
}

/// An instance with nothing but the stand-ins of all pools joins.
pub(crate) fn stand_ins_join() -> Happening {
    Happening::Join(Joining {
        slots: 1,
        pools: 7,
        node: 2,
        learns: false,
        apart: true,
        flags: 15,
        at_once: 0,
    })
}

/// A random event of a fleet that often hangs as a whole, next to stand-ins.
pub(crate) fn hanging() -> impl Strategy<Value = Happening> {
    let burst = (2..8usize, arrival()).prop_map(|(count, one)| Happening::Burst(count, Box::new(one)));
    prop_oneof![
        2 => happening(),
        4 => arrival(),
        2 => burst,
        3 => (20..600u64).prop_map(Happening::Time),
        1 => Just(stand_ins_join()),
        2 => any::<usize>().prop_map(Happening::Completion),
        1 => (any::<usize>(), failure()).prop_map(|(job, how)| Happening::Failing { job, how }),
        2 => (any::<usize>(), judgement()).prop_map(|(answer, judgement)| Happening::Judging { answer, judgement }),
    ]
}

pub(crate) fn happening() -> impl Strategy<Value = Happening> {
    let burst = (2..12usize, arrival()).prop_map(|(count, one)| Happening::Burst(count, Box::new(one)));
    prop_oneof![
        12 => arrival(),
        2 => burst,
        1 => any::<usize>().prop_map(Happening::Cancel),
        10 => any::<usize>().prop_map(Happening::Completion),
        2 => (any::<usize>(), failure()).prop_map(|(job, how)| Happening::Failing { job, how }),
        1 => joining().prop_map(Happening::Join),
        1 => (any::<usize>(), joining()).prop_map(|(which, joining)| Happening::Rejoin(which, joining)),
        1 => any::<usize>().prop_map(Happening::Leave),
        1 => Just(Happening::Desert),
        1 => any::<usize>().prop_map(Happening::Drain),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(probe, works)| Happening::ProbeAnswer { probe, works }),
        6 => (any::<usize>(), prop::bool::weighted(0.9)).prop_map(|(group, works)| Happening::Encoding { group, works }),
        6 => (any::<usize>(), prop::option::weighted(0.9, prop::option::of(0f32..1.0)))
            .prop_map(|(slot, outcome)| Happening::Decoding { slot, outcome }),
        6 => (any::<usize>(), prop::bool::weighted(0.7)).prop_map(|(group, agrees)| Happening::Comparing { group, agrees }),
        8 => (any::<usize>(), judgement()).prop_map(|(answer, judgement)| Happening::Judging { answer, judgement }),
        8 => (any::<usize>(), prop::option::weighted(0.9, prop::bool::weighted(0.7)))
            .prop_map(|(pair, agrees)| Happening::Checking { pair, agrees }),
        1 => cost().prop_map(Happening::Costing),
        2 => (any::<usize>(), 0..3u16, any::<bool>())
            .prop_map(|(instance, jobs, home)| Happening::Beside { instance, jobs, home }),
        13 => (any::<usize>(), tokens()).prop_map(|(instance, change)| Happening::Tokens(instance, change)),
        8 => prop_oneof![4 => 0..100u64, 1 => 0..3000u64].prop_map(Happening::Time),
        1 => settings().prop_map(|settings| Happening::Change(Box::new(settings))),
        1 => (0..POOLS).prop_map(Happening::Remove),
        1 => (settings(), kind(), 1..4u16, prop_oneof![Just(u32::MAX), 1..9000u32])
            .prop_map(|(settings, kind, rows, padded)| Happening::Force(Box::new(settings), kind, rows, padded)),
        1 => (1..POOLS, 0..POOLS).prop_map(|(pool, before)| Happening::Version(pool, before.min(pool - 1))),
        1 => prop_oneof![4 => 0..100u64, 1 => 0..3000u64].prop_map(Happening::Pause),
    ]
}
