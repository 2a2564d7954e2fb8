//! Coding groups in the world. A parity model computes what a linear model would.
//!
//! The prediction for a query is its number. So a reconstruction from wrong parts is a wrong number, which tests see.

use std::collections::BTreeMap;
use std::time::Duration;

use parm_dispatcher::{
    Coder, CodingAction, CodingSettings, Decode, Dispatcher, InstanceKey, Member, ModelKey, ModelSettings,
    Policy, QueryKey, Row, Submission,
};

use parm_encoder::Needs;

use crate::world::{Due, Event, World};

/// The groups of a world.
pub struct Coded {
    /// The books of the groups.
    pub coder: Coder<u64, u64>,
    /// How long it takes to encode a group.
    pub encode: Duration,
    /// How long it takes to decode a prediction.
    pub decode: Duration,
    /// The numbers of the queries that a parity encodes.
    pub(crate) members: BTreeMap<QueryKey, Vec<u64>>,
    /// The members of the group from which a query's answer was reconstructed.
    helped: BTreeMap<QueryKey, usize>,
    /// What is being encoded and decoded, and how often that began.
    coding: BTreeMap<u64, CodingAction<u64, u64>>,
    began: u64,
    /// The size of groups, and a parity model for each of their parities.
    parities: Vec<(usize, Vec<ModelKey>)>,
    /// Whether parities have servers of their own, so that they need not wait for idle ones.
    is_apart: bool,
}

impl Coded {
    pub(crate) fn new(
        settings: &CodingSettings,
        is_apart: bool,
        dispatcher: &mut Dispatcher<u64, u64>,
    ) -> Self {
        let mut add =
            |_| dispatcher.add_model(ModelSettings { policy: Policy::NONE, ..ModelSettings::default() });
        let parities =
            settings.codes.iter().map(|code| (code.k, (0..code.parities).map(&mut add).collect())).collect();
        Self {
            coder: Coder::new(settings.clone()),
            encode: Duration::ZERO,
            decode: Duration::ZERO,
            members: BTreeMap::new(),
            helped: BTreeMap::new(),
            coding: BTreeMap::new(),
            began: 0,
            parities,
            is_apart,
        }
    }

    /// A query has ended. Returns the members of the group from which its answer was reconstructed, or 0.
    pub(crate) fn forget(&mut self, query: QueryKey) -> usize {
        self.members.remove(&query);
        self.helped.remove(&query).unwrap_or_default()
    }

    /// The parity models.
    pub fn models(&self) -> impl Iterator<Item = ModelKey> {
        self.parities.iter().flat_map(|(_, models)| models).copied()
    }
}

impl World {
    /// Queries start their first run.
    pub(crate) fn group(&mut self, instance: InstanceKey, rows: &[Row<u64>]) {
        let Some(coded) = &mut self.coded else { return };
        let load = self.dispatcher.load(self.now, self.model);
        for Row { query, payload } in rows {
            let asked = self.open.get(query).map(|(asked, _)| asked);
            let Some(asked) = asked.filter(|asked| !asked.background) else { continue };
            let member = Member {
                query: *query,
                instance,
                shape: asked.shape,
                payload: *payload,
                deadline: asked.deadline,
                late_at: self.dispatcher.late_at(*query),
            };
            coded.coder.started(self.now, member, load);
        }
    }

    /// Executes the coder's actions, at once or after the time that they take.
    pub(crate) fn code(&mut self) {
        let Some(coded) = &mut self.coded else { return };
        let actions: Vec<_> = coded.coder.actions().collect();
        if actions.is_empty() {
            return;
        }
        for action in actions {
            let Some(coded) = &mut self.coded else { return };
            let takes = match action {
                CodingAction::Encode { .. } => coded.encode,
                CodingAction::Decode(_) => coded.decode,
                CodingAction::Withdraw { .. } => Duration::ZERO,
            };
            if takes.is_zero() {
                self.coded(action);
            } else {
                coded.began += 1;
                let number = coded.began;
                coded.coding.insert(number, action);
                self.schedule_at(self.now + takes, Due::Codes { number });
            }
        }
        self.execute();
    }

    /// What took its time is encoded or decoded.
    pub(crate) fn code_later(&mut self, number: u64) {
        if let Some(action) = self.coded.as_mut().and_then(|coded| coded.coding.remove(&number)) {
            self.coded(action);
        }
    }

    fn coded(&mut self, action: CodingAction<u64, u64>) {
        let Some(coded) = &mut self.coded else { return };
        match action {
            CodingAction::Encode { group, code, payloads } => {
                let Some(deadline) = coded.coder.deadline(group) else { return };
                let models = coded.parities.iter().find(|(k, _)| *k == code.k);
                for (parity, model) in models.into_iter().flat_map(|(_, models)| models).enumerate() {
                    let query = Submission {
                        background: !coded.is_apart,
                        apart_from: coded.coder.instances(group),
                        ..Submission::new(*model, encode(&payloads, parity), deadline)
                    };
                    let key = self.dispatcher.submit(self.now, query.clone());
                    self.log.push(Event::Arrived(key, query));
                    coded.members.insert(key, payloads.iter().flatten().copied().collect());
                    coded.coder.submitted(group, parity, key);
                }
            }
            CodingAction::Decode(of) => {
                for (query, slot) in &of.lost {
                    let Some((asked, _)) = self.open.get(query) else { continue };
                    if let Some(number) = decode(&of, *slot, asked.payload) {
                        self.log.push(Event::Offered(*query));
                        coded.helped.insert(*query, of.members.len());
                        coded.coder.decoded(true);
                        self.dispatcher.offer(self.now, *query, number);
                    }
                }
            }
            CodingAction::Withdraw { parity } => {
                if self.dispatcher.cancel(self.now, parity).is_some() {
                    self.log.push(Event::Left(parity));
                    coded.members.remove(&parity);
                    coded.coder.cancelled(self.now, parity);
                }
            }
        }
    }
}

/// The weight of a slot in a parity: any losses up to the number of parities can be solved for.
fn weight(slot: usize, parity: usize) -> u64 {
    (slot as u64 + 1).wrapping_pow(parity as u32)
}

fn encode(payloads: &[Option<u64>], parity: usize) -> u64 {
    let weighted =
        |(slot, number): (usize, &Option<u64>)| weight(slot, parity).wrapping_mul(number.unwrap_or_default());
    payloads.iter().enumerate().map(weighted).fold(0, u64::wrapping_add)
}

/// The prediction of a slot, which is `right`. It is solved for as long as one or two are missing, so a wrong part makes it wrong.
fn decode(of: &Decode<u64>, slot: usize, right: u64) -> Option<u64> {
    let missing: Vec<usize> = of.members.iter().filter(|at| of.predictions[*at].is_none()).collect();
    let here: Vec<usize> = (0..of.parities.len()).filter(|at| of.parities[*at].is_some()).collect();
    if of.code.needs != Needs::AsManyAsMissing || missing.len() > 2 {
        return Some(right);
    }
    // What the missing ones add up to in a parity.
    let left = |parity: usize| Some(of.parities[parity]?.wrapping_sub(encode(&of.predictions, parity)));
    match (&missing[..], &here[..]) {
        ([_], [parity, ..]) => Some(left(*parity)? / weight(slot, *parity)),
        ([one, other], [first, second, ..]) => {
            let other = if slot == *one { *other } else { *one };
            let of = |slot, parity: &usize| i128::from(weight(slot, *parity));
            let determinant = of(slot, first) * of(other, second) - of(other, first) * of(slot, second);
            let (first_left, second_left) = (i128::from(left(*first)?), i128::from(left(*second)?));
            let solved = first_left * of(other, second) - second_left * of(other, first);
            Some(u64::try_from(solved / determinant).unwrap_or(u64::MAX))
        }
        _ => None,
    }
}
