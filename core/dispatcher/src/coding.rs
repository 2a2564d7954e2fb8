//! Coding groups: parities of several queries, from which the prediction of a late one is reconstructed.
//!
//! **A client of the dispatcher.** A [`Coder`] sees queries start and end. It collects started queries into groups, has each
//! group encoded into parities, which its caller submits as queries of parity models, and has a late member decoded from the
//! outputs of the others. The caller offers the result to the dispatcher. So the dispatcher needs no rule for parities, and the
//! coder none for instances: a parity is a query that nobody waits for. Bytes are encoded and decoded by the caller, off
//! the lock.
//!
//! **The calls.** [`started`](Coder::started) for each query that starts its first run; [`replied`](Coder::replied) for each
//! reply, those of parities among them; [`cancelled`](Coder::cancelled) for each query that gets none; after [`Encode`](CodingAction::Encode) either
//! [`submitted`](Coder::submitted) for each parity or [`give_up`](Coder::give_up); [`sent`](Coder::sent) when a parity starts;
//! [`decoded`](Coder::decoded) for each prediction that was reconstructed; [`tick`](Coder::tick) when
//! [`next_tick`](Coder::next_tick) has come. A decoder that fails reports nothing, because nobody waits for it.
//!
//! **A query joins when it starts**, because coding must not delay it. It joins a group in which no unanswered query runs at
//! the same instance: an instance that dies must not take two members with it. Rows of one job therefore join groups of
//! their own.
//!
//! **A member is decoded once, when it is late.** A prediction is often in a moment later, and then it is exact and costs no
//! decoding.
//!
//! **What is not needed is dropped at once.** A group ends as soon as no member without a reply can be recovered from what
//! may still come. Its parities are then withdrawn, running or not, and its payloads and outputs with them. Members are
//! queries without a reply or members of an open group, and at most 64 groups are open, so memory is bounded by the queries in
//! flight.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use parm_encoder::{Arrived, Recovery, Set};
use slotmap::{SlotMap, new_key_type};
use smallvec::SmallVec;

use crate::Time;
use crate::instance::InstanceKey;
use crate::query::{Answer, By, QueryKey, Reject, Shape};

new_key_type! {
    /// The name of a coding group. It is never given twice.
    pub struct GroupKey;
}

/// How groups are made. By default there are no codes, so none are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodingSettings {
    /// The codes that there are parity models for, by the size of their groups, ascending.
    pub codes: Vec<Recovery>,
    /// Whether groups grow with the load; otherwise all have the size of the first code.
    pub follows_load: bool,
    /// The age at which a group of two members or more is coded, full or not.
    pub max_age: Duration,
}

/// A query that starts its first run.
#[derive(Clone, Debug)]
pub struct Member<P> {
    /// Its name.
    pub query: QueryKey,
    /// Where it runs.
    pub instance: InstanceKey,
    /// Queries of unequal shape never share a group, because a code needs tensors of one size.
    pub shape: Shape,
    /// What the encoder reads.
    pub payload: P,
    /// When nobody waits for it any more.
    pub deadline: Time,
    /// From when on a reconstruction may answer it. `None` if its client takes the model's own answer only.
    pub late_at: Option<Time>,
}

/// The place of a query in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The group.
    pub group: GroupKey,
    /// The members that it has room for.
    pub size: usize,
    /// The place.
    pub slot: usize,
}

/// A group that takes members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenGroup {
    /// The members that it has room for.
    pub size: usize,
    /// Those that it has.
    pub members: usize,
    /// When it got the first one.
    pub since: Time,
}

/// What happened to groups so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodingCounters {
    /// Groups that were encoded.
    pub groups: u64,
    /// Those that were not full.
    pub groups_partial: u64,
    /// Groups that were never encoded: they had one member when they were old, or could help nobody.
    pub groups_dissolved: u64,
    /// Parities that started.
    pub parities: u64,
    /// Parities that never started, because they were rejected or not needed any more.
    pub parities_unsent: u64,
    /// Outputs of parities that came when they were not needed any more.
    pub parities_late: u64,
    /// Predictions that were reconstructed.
    pub reconstructions: u64,
    /// Those that clients got.
    pub reconstructions_served: u64,
    /// Those with too little confidence.
    pub reconstructions_unsure: u64,
}

/// What the caller should do.
#[derive(Clone, Debug, PartialEq)]
pub enum CodingAction<P, O> {
    /// Encode the payloads of a group.
    Encode {
        /// The group.
        group: GroupKey,
        /// Its code.
        code: Recovery,
        /// A payload for each slot; `None` for the blank slots of a group that is not full.
        payloads: Vec<Option<P>>,
    },
    /// Reconstruct predictions.
    Decode(Box<Decode<O>>),
    /// Cancel a parity that is not needed any more, and if it had no reply yet, say so with [`Coder::cancelled`].
    Withdraw {
        /// The query of the parity.
        parity: QueryKey,
    },
}

/// Predictions to reconstruct, and what they are reconstructed from.
#[derive(Clone, Debug, PartialEq)]
pub struct Decode<O> {
    /// The group.
    pub group: GroupKey,
    /// Its code.
    pub code: Recovery,
    /// The late queries and their slots.
    pub lost: SmallVec<[(QueryKey, usize); 1]>,
    /// The slots that hold a query.
    pub members: Set,
    /// The predictions that have arrived, by slot.
    pub predictions: Vec<Option<O>>,
    /// The outputs of the parities that have arrived.
    pub parities: Vec<Option<O>>,
}

/// Collects queries into groups, and says what to encode and to decode. See `core/dispatcher/src/coding.rs`.
#[derive(Debug)]
pub struct Coder<P, O> {
    settings: CodingSettings,
    groups: SlotMap<GroupKey, Group<P, O>>,
    /// The groups that take members, the oldest first.
    open: Vec<GroupKey>,
    /// Where members and parities without a reply are. Ordered and no `SecondaryMap`: while a reply is on its way, the slot of
    /// its query may have the next query, which would evict it.
    places: BTreeMap<QueryKey, Place>,
    looks: BinaryHeap<Reverse<(Time, GroupKey)>>,
    actions: Vec<CodingAction<P, O>>,
    counters: CodingCounters,
    /// The groups that were encoded since somebody asked, by size.
    made: BTreeMap<usize, u32>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    group: GroupKey,
    is_parity: bool,
    /// Whether a parity has started.
    is_sent: bool,
    at: usize,
}

#[derive(Debug)]
struct Group<P, O> {
    code: Recovery,
    shape: Shape,
    is_open: bool,
    since: Time,
    closes_at: Time,
    /// Until it is closed.
    payloads: Vec<Option<P>>,
    slots: SmallVec<[Slot<O>; 4]>,
    parities: SmallVec<[Parity<O>; 2]>,
    /// The next look at this group.
    look: Time,
}

#[derive(Debug)]
struct Slot<O> {
    query: QueryKey,
    instance: InstanceKey,
    deadline: Time,
    /// `None` if no reconstruction is wanted, or none any more.
    late_at: Option<Time>,
    output: Output<O>,
}

#[derive(Debug)]
struct Parity<O> {
    /// Its query, once it is encoded.
    query: Option<QueryKey>,
    output: Output<O>,
}

#[derive(Debug)]
enum Output<O> {
    Coming,
    In(O),
    Lost,
}

/// Most groups that take members at a time. Clients that vary shapes must not keep more.
const OPEN_AT_ONCE: usize = 64;

/// Queries and parities together should keep this share of the instances busy at most, because waits rise beyond it.
const FULL: f64 = 0.65;

/// Above this load hardly any instance is idle for a parity, and no group is made.
const NO_ROOM: f64 = 0.8;

/// The smallest group that leaves room for its parity at this load, or the largest there is: parities that do not fit do not
/// run. A parity of `k` queries adds the `k`-th part of their load.
fn size_for(load: f64, codes: &[Recovery]) -> Option<Recovery> {
    if load > NO_ROOM {
        return None;
    }
    let wanted = if load < FULL { (load / (FULL - load)).ceil() } else { f64::INFINITY };
    codes.iter().find(|code| code.k as f64 >= wanted).or(codes.last()).copied()
}

/// The instances that run parities only, if parities have instances of their own: as in the ParM paper, one of `k + 1`.
pub fn parity_instances(instances: usize, k: usize) -> usize {
    if instances < 2 { 0 } else { ((instances + k.div_ceil(2)) / (k + 1)).max(1) }
}

impl<O: Clone> Output<O> {
    fn of(output: Option<O>) -> Self {
        output.map_or(Output::Lost, Output::In)
    }

    fn get(&self) -> Option<O> {
        match self {
            Output::In(output) => Some(output.clone()),
            Output::Coming | Output::Lost => None,
        }
    }

    fn is_coming(&self) -> bool {
        matches!(self, Output::Coming)
    }
}

impl<O: Clone> Slot<O> {
    /// Whether a reconstruction would help it.
    fn wants_help(&self) -> bool {
        self.output.is_coming() && self.late_at.is_some()
    }
}

impl<P, O: Clone> Group<P, O> {
    /// Whether the prediction of a slot can be recovered from the outputs that are in, or from these and all that may come.
    fn can_recover(&self, slot: usize, with_coming: bool) -> bool {
        let is_in = |output: &Output<O>| match output {
            Output::In(_) => true,
            Output::Coming => with_coming,
            Output::Lost => false,
        };
        let slots = self.slots.iter().enumerate().filter(|(_, own)| is_in(&own.output));
        let parities = self.parities.iter().enumerate().filter(|(_, own)| is_in(&own.output));
        let arrived = Arrived {
            members: Set::first(self.slots.len()),
            predictions: slots.map(|(at, _)| at).collect(),
            parities: parities.map(|(at, _)| at).collect(),
        };
        self.code.can_recover(arrived, Set::EMPTY.with(slot))
    }

    /// Whether it may still help a member.
    fn is_needed(&self) -> bool {
        let mut slots = self.slots.iter().enumerate();
        slots.any(|(at, own)| own.wants_help() && self.can_recover(at, true))
    }
}

impl<P, O: Clone> Coder<P, O> {
    /// One without groups.
    pub fn new(settings: CodingSettings) -> Self {
        Self {
            settings,
            groups: SlotMap::with_key(),
            open: Vec::new(),
            places: BTreeMap::new(),
            looks: BinaryHeap::new(),
            actions: Vec::new(),
            counters: CodingCounters::default(),
            made: BTreeMap::new(),
        }
    }

    /// Changes how groups are made from now on. Groups that have members keep their code.
    pub fn configure(&mut self, settings: CodingSettings) {
        self.settings = settings;
    }

    /// What happened so far.
    pub fn counters(&self) -> CodingCounters {
        self.counters
    }

    /// The groups that take members, the oldest first.
    pub fn open(&self) -> impl Iterator<Item = OpenGroup> {
        self.open.iter().map(|key| {
            let Group { code, slots, since, .. } = &self.groups[*key];
            OpenGroup { size: code.k, members: slots.len(), since: *since }
        })
    }

    /// Takes the numbers of groups that were encoded since the last call, by size.
    pub fn take_made(&mut self) -> BTreeMap<usize, u32> {
        std::mem::take(&mut self.made)
    }

    /// Groups in the books, and the members and parities without a reply.
    pub fn held(&self) -> (usize, usize) {
        (self.groups.len(), self.places.len())
    }

    /// Takes out the actions since the last call.
    pub fn actions(&mut self) -> std::vec::Drain<'_, CodingAction<P, O>> {
        self.actions.drain(..)
    }

    /// When to call [`tick`](Self::tick).
    pub fn next_tick(&self) -> Option<Time> {
        self.looks.peek().map(|Reverse((at, _))| *at)
    }

    /// A query that can be coded starts its first run, while queries need this share of the instances. Returns the place that it got.
    pub fn started(&mut self, now: Time, member: Member<P>, load: f64) -> Option<Joined> {
        if self.places.contains_key(&member.query) {
            return None;
        }
        let key = self.open_group(now, &member, load)?;
        let Member { query, instance, payload, deadline, late_at, .. } = member;
        let group = &mut self.groups[key];
        let joined = Joined { group: key, size: group.code.k, slot: group.slots.len() };
        self.places.insert(query, Place { group: key, is_parity: false, is_sent: false, at: joined.slot });
        group.payloads.push(Some(payload));
        group.slots.push(Slot { query, instance, deadline, late_at, output: Output::Coming });
        if group.slots.len() >= group.code.k {
            self.close(now, key);
        }
        Some(joined)
    }

    /// The group that a query joins.
    fn open_group(&mut self, now: Time, member: &Member<P>, load: f64) -> Option<GroupKey> {
        let suits = |key: &&GroupKey| {
            let group = &self.groups[**key];
            let mut others = group.slots.iter().filter(|own| own.output.is_coming());
            group.shape == member.shape && others.all(|own| own.instance != member.instance)
        };
        if let Some(key) = self.open.iter().find(suits) {
            return Some(*key);
        }
        if self.open.len() >= OPEN_AT_ONCE {
            return None;
        }
        let codes = &self.settings.codes;
        let code = if self.settings.follows_load { size_for(load, codes) } else { codes.first().copied() }?;
        let closes_at = now + self.settings.max_age;
        let key = self.groups.insert(Group {
            code,
            shape: member.shape,
            is_open: true,
            since: now,
            closes_at,
            payloads: Vec::with_capacity(code.k),
            slots: SmallVec::new(),
            parities: (0..code.parities).map(|_| Parity { query: None, output: Output::Coming }).collect(),
            look: Time::MAX,
        });
        self.open.push(key);
        self.look_at(key, closes_at);
        Some(key)
    }

    /// A group of two members or more is encoded, if that may still help one of them.
    fn close(&mut self, now: Time, key: GroupKey) {
        let group = &mut self.groups[key];
        if group.slots.len() < 2 || !group.is_needed() {
            return self.give_up(key);
        }
        group.is_open = false;
        self.counters.groups += 1;
        self.counters.groups_partial += u64::from(group.slots.len() < group.code.k);
        *self.made.entry(group.code.k).or_default() += 1;
        let mut payloads = std::mem::take(&mut group.payloads);
        payloads.resize_with(group.code.k, || None);
        self.actions.push(CodingAction::Encode { group: key, code: group.code, payloads });
        self.open.retain(|open| *open != key);
        self.advance(now, key);
    }

    /// The deadline of a group's parities, to be asked when they are encoded; `None` if they are not needed any more.
    pub fn deadline(&self, group: GroupKey) -> Option<Time> {
        let waiting = self.groups.get(group)?.slots.iter().filter(|own| own.wants_help());
        waiting.map(|own| own.deadline).max()
    }

    /// Where the members of a group began to run: its parities should run elsewhere.
    pub fn instances(&self, group: GroupKey) -> Vec<InstanceKey> {
        let slots = self.groups.get(group).map(|group| group.slots.iter().map(|own| own.instance));
        slots.into_iter().flatten().collect()
    }

    /// A parity of a group was submitted as this query. To be called before the query's reply is.
    pub fn submitted(&mut self, group: GroupKey, parity: usize, query: QueryKey) {
        self.places.insert(query, Place { group, is_parity: true, is_sent: false, at: parity });
        match self.groups.get_mut(group).and_then(|group| group.parities.get_mut(parity)) {
            Some(own) if own.query.is_none() => own.query = Some(query),
            _ => self.actions.push(CodingAction::Withdraw { parity: query }),
        }
    }

    /// A parity starts its run.
    pub fn sent(&mut self, parity: QueryKey) {
        if let Some(place) = self.places.get_mut(&parity).filter(|place| place.is_parity && !place.is_sent) {
            place.is_sent = true;
            self.counters.parities += 1;
        }
    }

    /// A prediction was reconstructed, surely enough to be offered or not.
    pub fn decoded(&mut self, is_sure: bool) {
        self.counters.reconstructions += 1;
        self.counters.reconstructions_unsure += u64::from(!is_sure);
    }

    /// A query has its reply. Returns whether it was a parity, for whose reply no client waits.
    pub fn replied(&mut self, now: Time, query: QueryKey, result: &Result<Answer<O>, Reject>) -> bool {
        let is_served = result.as_ref().is_ok_and(|answer| answer.by == By::Reconstruction);
        self.counters.reconstructions_served += u64::from(is_served);
        let Some(Place { group: key, is_parity, is_sent, at }) = self.places.remove(&query) else {
            return false;
        };
        self.counters.parities_unsent += u64::from(is_parity && !is_sent);
        let own = result.as_ref().ok().filter(|answer| !answer.by.is_approximate());
        let output = Output::of(own.map(|answer| answer.output.clone()));
        if let Some(group) = self.groups.get_mut(key) {
            *if is_parity { &mut group.parities[at].output } else { &mut group.slots[at].output } = output;
            self.advance(now, key);
        } else {
            self.counters.parities_late += u64::from(is_parity && result.is_ok());
        }
        is_parity
    }

    /// A query was cancelled: there is no reply.
    pub fn cancelled(&mut self, now: Time, query: QueryKey) {
        self.replied(now, query, &Err(Reject::Deadline));
    }

    /// Looks at what is due.
    pub fn tick(&mut self, now: Time) {
        while let Some(Reverse((at, key))) = self.looks.peek().copied().filter(|Reverse((at, _))| *at <= now)
        {
            self.looks.pop();
            if let Some(group) = self.groups.get_mut(key).filter(|group| group.look == at) {
                group.look = Time::MAX;
                self.advance(now, key);
            }
        }
    }

    /// Does what a group needs now: closes it, has late members decoded, or ends it. Asking twice does no harm.
    fn advance(&mut self, now: Time, key: GroupKey) {
        let group = &mut self.groups[key];
        if group.is_open {
            if group.closes_at <= now {
                self.close(now, key);
            }
            return; // Members that join later may need it.
        }
        let (mut lost, mut next) = (SmallVec::new(), Time::MAX);
        for at in 0..group.slots.len() {
            if !group.slots[at].wants_help() || !group.can_recover(at, false) {
                continue;
            }
            match group.slots[at].late_at {
                Some(late_at) if late_at > now => next = next.min(late_at),
                _ => {
                    group.slots[at].late_at = None;
                    lost.push((group.slots[at].query, at));
                }
            }
        }
        if !lost.is_empty() {
            self.actions.push(CodingAction::Decode(Box::new(Decode {
                group: key,
                code: group.code,
                lost,
                members: Set::first(group.slots.len()),
                predictions: group.slots.iter().map(|own| own.output.get()).collect(),
                parities: group.parities.iter().map(|own| own.output.get()).collect(),
            })));
        }
        if group.is_needed() {
            self.look_at(key, next);
        } else {
            self.give_up(key);
        }
    }

    fn look_at(&mut self, key: GroupKey, at: Time) {
        if at < self.groups[key].look {
            self.groups[key].look = at;
            self.looks.push(Reverse((at, key)));
        }
    }

    /// Forgets a group and withdraws its parities: nobody needs it any more, or it could not be encoded. Its members are not
    /// affected.
    pub fn give_up(&mut self, key: GroupKey) {
        let Some(group) = self.groups.remove(key) else { return };
        self.open.retain(|open| *open != key);
        self.counters.groups_dissolved += u64::from(group.is_open);
        for slot in group.slots.iter().filter(|own| own.output.is_coming()) {
            self.places.remove(&slot.query);
        }
        let coming = group.parities.iter().filter(|own| own.output.is_coming());
        let parities = coming.filter_map(|own| own.query);
        self.actions.extend(parities.map(|parity| CodingAction::Withdraw { parity }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parm_encoder::Needs;

    fn code(k: usize, parities: usize) -> Recovery {
        Recovery { k, parities, needs: Needs::AsManyAsMissing }
    }

    fn list(outputs: impl IntoIterator<Item = Option<u64>>) -> String {
        let each = outputs.into_iter().map(|output| output.map_or("_".into(), |number| number.to_string()));
        each.collect::<Vec<_>>().join(" ")
    }

    /// Says in words what comes of a script, and how many groups, and members and parities without a reply, are left.
    ///
    /// A number is the time in ms from then on. `s` starts a query at an instance of its own; `e` does so for a client that takes
    /// exact answers only, `i7` at instance 7, `w7` there with a row of another size. Queries are numbered as they start, the
    /// parities of a group when it is encoded, and a payload and an answer is the number. `a0` answers query 0, `r0` gives it a
    /// reconstruction, `l0` rejects it, `n0` gives the place of its name to the next query, and the parity `p0` starts. From `b` on
    /// encoding fails, from `g` on it does not. `t` lets time pass.
    fn run(code: Recovery, script: &str) -> String {
        let mut coder = coder(code);
        let seen = play(&mut coder, script);
        let (groups, without_reply) = coder.held();
        seen.into_iter().chain([format!("left {groups} {without_reply}")]).collect::<Vec<_>>().join(", ")
    }

    fn coder(code: Recovery) -> Coder<u64, u64> {
        let max_age = Duration::from_millis(20);
        Coder::new(CodingSettings { codes: vec![code], follows_load: false, max_age })
    }

    fn play(coder: &mut Coder<u64, u64>, script: &str) -> Vec<String> {
        let (mut names, mut queries, mut breaks) = (SlotMap::with_key(), Vec::new(), false);
        let (mut now, mut seen) = (Time::ZERO, Vec::new());
        for word in script.split(' ') {
            let number: usize = word.trim_start_matches(|c: char| c.is_alphabetic()).parse().unwrap_or(1000);
            let late_at = Some(now + Duration::from_millis(25));
            let mut start = |instance: Option<usize>, size, late_at| {
                let (payload, query) = (queries.len() as u64, names.insert(()));
                queries.push(query);
                let instance = instance.unwrap_or(queries.len() + 1000);
                let instance = slotmap::KeyData::from_ffi(1 << 32 | instance as u64).into();
                let shape = Shape { name: 0, size };
                let member = Member { query, instance, shape, payload, deadline: Time::MAX, late_at };
                coder.started(now, member, 0.5);
            };
            let mut result = None;
            match word.chars().next() {
                Some('0'..='9') => now = Time::from_nanos(number as u64 * 1_000_000),
                Some('s') => start(None, 1, late_at),
                Some('e') => start(None, 1, None),
                Some('i') => start(Some(number), 1, late_at),
                Some('w') => start(Some(number), 2, late_at),
                Some('a') => result = Some(Ok(Answer { output: number as u64, by: By::Model })),
                Some('r') => result = Some(Ok(Answer { output: 99, by: By::Reconstruction })),
                Some('l') => result = Some(Err(Reject::Deadline)),
                Some('p') => coder.sent(queries[number]),
                Some('n') => drop(names.remove(queries[number])),
                Some('b') => breaks = true,
                Some('g') => breaks = false,
                _ => coder.tick(now),
            }
            if result.is_some_and(|result| coder.replied(now, queries[number], &result)) {
                seen.push(format!("parity {number}"));
            }
            let of = |queries: &[QueryKey], key| Some(queries.iter().position(|own| *own == key)? as u64);
            let actions: Vec<_> = coder.actions().collect();
            for action in actions {
                match action {
                    CodingAction::Encode { group, .. } if breaks => coder.give_up(group),
                    CodingAction::Encode { group, code, payloads } => {
                        assert_eq!(coder.deadline(group), Some(Time::MAX));
                        for parity in 0..code.parities {
                            queries.push(names.insert(()));
                            coder.submitted(group, parity, queries[queries.len() - 1]);
                        }
                        seen.push(format!("encode {}", list(payloads)));
                    }
                    CodingAction::Decode(decode) => {
                        let lost = list(decode.lost.iter().map(|(query, _)| of(&queries, *query)));
                        let (own, parities) = (list(decode.predictions), list(decode.parities));
                        seen.push(format!("decode {lost} from {own} + {parities}"));
                    }
                    CodingAction::Withdraw { parity } => {
                        seen.push(format!("withdraw {}", list([of(&queries, parity)])));
                    }
                }
            }
        }
        seen
    }

    #[test]
    fn counters_say_what_became_of_groups_and_parities() {
        let (two, two_and_two, three) = (code(2, 1), code(2, 2), code(3, 1));
        // Groups, partial and dissolved ones; parities that started, that did not, that were late; reconstructions.
        let rows = [
            (two, "s s p2 9 a0 a2 25 t r1", [1, 0, 0, 1, 0, 0, 1]),
            (three, "s s 20 t s 40 t", [1, 1, 1, 0, 0, 0, 0]),
            (two, "e e", [0, 0, 1, 0, 0, 0, 0]),
            (two_and_two, "s s p2 9 a2 a0 a1 l3", [1, 0, 0, 1, 1, 0, 0]),
            (two, "s s p2 p2 9 a0 a1 a2", [1, 0, 0, 1, 0, 1, 0]),
            (two, "s s p2 9 a0 a1 l2 s s p5", [2, 0, 0, 2, 0, 0, 0]),
            (two, "s s p0 a0", [1, 0, 0, 0, 0, 0, 0]),
        ];
        for (code, script, counts) in rows {
            let mut coder = coder(code);
            play(&mut coder, script);
            let of = coder.counters();
            let groups = [of.groups, of.groups_partial, of.groups_dissolved];
            let parities = [of.parities, of.parities_unsent, of.parities_late];
            assert_eq!([&groups[..], &parities, &[of.reconstructions_served]].concat(), counts, "{script}");
            let made: Vec<_> = coder.take_made().into_iter().collect();
            let groups = of.groups as u32;
            assert_eq!(made, if groups == 0 { vec![] } else { vec![(code.k, groups)] });
            assert!(coder.take_made().is_empty());
        }
    }

    #[test]
    fn new_settings_are_those_of_new_groups() {
        let mut coder = coder(code(3, 1));
        play(&mut coder, "7 s");
        coder.configure(CodingSettings { codes: vec![code(2, 1)], ..coder.settings.clone() });
        let open = OpenGroup { size: 3, members: 1, since: Time::from_nanos(7_000_000) };
        assert_eq!(coder.open().collect::<Vec<_>>(), [open]);
        assert_eq!(play(&mut coder, "27 t s s"), ["encode 0 1"], "the first group grew old alone");
    }

    #[test]
    fn each_history_of_a_group_has_its_outcome() {
        let (two, two_and_two, three, three_and_two) = (code(2, 1), code(2, 2), code(3, 1), code(3, 2));
        let rows = [
            // A late member is decoded from the others and the parities, and not before it is late.
            (three, "s s s 9 a0 a3 30 a2", "encode 0 1 2, parity 3, decode 1 from 0 _ 2 + 3, left 0 0"),
            (two, "s s 9 a0 a2 24 t", "encode 0 1, parity 2, left 1 1"),
            (two, "s s 9 a0 a2 20 t 25 t", "encode 0 1, parity 2, decode 1 from 0 _ + 2, left 0 0"),
            (two, "s s 9 a0 a2 24 a1 25 t", "encode 0 1, parity 2, left 0 0"),
            // As many members as parities may be lost, and a reconstruction is no prediction.
            (three, "s s s 9 a1 30 a3", "encode 0 1 2, parity 3, left 1 2"),
            (
                three_and_two,
                "s s s 9 a1 30 a3 a4",
                "encode 0 1 2, parity 3, parity 4, decode 0 2 from _ 1 _ + 3 4, left 0 0",
            ),
            (three_and_two, "s s s 9 r0 a1 30 a3", "encode 0 1 2, parity 3, left 1 2"),
            // An old group has blank slots, and a single query is left alone.
            (three, "s 20 t 30 s s 49 t", "left 1 2"),
            (three, "s 20 t 30 s s 49 t 50 t", "encode 1 2 _, left 1 3"),
            // A group that is full takes no further members.
            (two, "s s s s", "encode 0 1, encode 3 4, left 2 6"),
            // Rows of unequal size share no group, nor do rows that an instance would lose together.
            (two, "i7 w8 i7 i9 w9", "encode 0 3, encode 1 5, left 3 7"),
            (two, "i7 9 a0 i7", "encode 0 1, left 1 2"),
            // Clients that take exact answers only help others.
            (two, "e e", "left 0 0"),
            (two, "e s 9 a2 30 a0", "encode 0 1, parity 2, decode 1 from 0 _ + 2, left 0 0"),
            (two, "e s 9 a2 30 a1", "encode 0 1, parity 2, left 0 0"),
            // A group ends when it can help nobody, and its parities are known until their reply.
            (two_and_two, "s s 9 a2 a0 a1", "encode 0 1, parity 2, withdraw 3, left 0 1"),
            (two_and_two, "s s 9 l0 l2", "encode 0 1, parity 2, withdraw 3, left 0 1"),
            (two_and_two, "s s 9 l2 l3", "encode 0 1, parity 2, parity 3, left 0 0"),
            (two, "s s 9 a0 a1 n2 s l2 l2", "encode 0 1, withdraw 2, parity 2, left 1 1"),
            (two, "b s s g s s", "encode 2 3, left 1 3"),
        ];
        for (code, script, outcome) in rows {
            assert_eq!(run(code, script), outcome, "{script}");
        }
    }

    #[test]
    fn clients_that_vary_shapes_open_a_bounded_number_of_groups() {
        // Rows of one instance share no group either.
        let script = ["i7"; 1000].join(" ");
        assert_eq!(run(code(2, 1), &script), format!("left {OPEN_AT_ONCE} {OPEN_AT_ONCE}"));
        assert_eq!(run(code(2, 1), &(script + " 20 t")), "left 0 0");
    }

    #[test]
    fn groups_grow_with_the_load_as_far_as_there_are_codes() {
        let codes = [code(2, 1), code(3, 1), code(4, 1)];
        let sizes =
            [(0.1, Some(2)), (0.4, Some(2)), (0.45, Some(3)), (0.5, Some(4)), (0.7, Some(4)), (0.81, None)];
        for (load, size) in sizes {
            assert_eq!(size_for(load, &codes).map(|code| code.k), size, "at {load}");
        }
        assert_eq!(size_for(0.4, &[]), None);
    }

    #[test]
    fn one_instance_of_k_and_one_is_kept_for_parities() {
        for (instances, k, kept) in [(18, 2, 6), (12, 2, 4), (12, 3, 3), (4, 2, 1), (2, 2, 1), (1, 2, 0)] {
            assert_eq!(parity_instances(instances, k), kept, "{instances} instances, groups of {k}");
        }
    }
}
