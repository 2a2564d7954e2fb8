//! Coding as a client of the dispatcher: it sees queries start and end, submits parities and offers reconstructions.
//!
//! The groups are those of [`Coder`]; the arithmetic is in `coding`, off the lock.

use std::sync::{Arc, Weak};

use parm_dispatcher::{
    Accept, Coder, CodingAction, Decode, GroupKey, InstanceKey, Joined, Member, QueryKey, Submission, Time,
};
use parm_protocol::{ModelRef, NamedTensor};
use slotmap::Key;
use smallvec::SmallVec;

use super::attempt::Payload;
use super::call::{Call, Output, QueryRow};
use super::coding::{self, Codes, Decoded, Decoding, Encoding, ParityQuery, Work};
use super::driver::Driver;
use super::pool::{Pool, PoolId};
use super::state::{Effect, State};
use crate::console::Step;
use crate::error::Error;
use crate::metrics::CodeMetric;

/// The coding groups of a pool.
pub(super) struct Coded {
    pub(super) coder: Coder<Payload, Output>,
    pub(super) codes: Arc<Codes>,
    /// Whether parities wait for idle instances where they share instances with queries. Otherwise they wait in line as queries do.
    pub(super) is_background: bool,
    /// Groups that could not be encoded, and predictions that could not be decoded.
    pub(super) failures: [u64; 2],
}

/// A parity of a group. It holds the code that made it, because the pool's codes may change before it is decoded.
pub(crate) struct Parity {
    pub(super) pool: Arc<Pool>,
    pub(super) coder: Arc<coding::Coder>,
    pub(super) model: Arc<ModelRef>,
    pub(super) inputs: Vec<NamedTensor>,
    pub(super) group: GroupKey,
    pub(super) members: SmallVec<[(Weak<Call>, usize); 4]>,
    pub(super) deadline: Time,
}

impl Parity {
    /// The members of its group that are still known.
    pub(super) fn members(&self) -> impl Iterator<Item = QueryRow> {
        self.members
            .iter()
            .filter_map(|(call, index)| Some(QueryRow { call: call.upgrade()?, index: *index }))
    }
}

/// A group that is being encoded.
pub(crate) struct Grouped {
    pub(super) pool: PoolId,
    pub(super) key: GroupKey,
    pub(super) coder: Arc<coding::Coder>,
    pub(super) members: SmallVec<[(Weak<Call>, usize); 4]>,
}

impl State {
    /// A query starts its first run: it may join a group.
    pub(super) fn group(&mut self, now: Time, (query, instance): (QueryKey, InstanceKey), row: &QueryRow) {
        let call = &row.call;
        let Some(coded) = self.coded.get_mut(&call.pool.id) else { return };
        // The guards of other codes did not check it: it could spoil the whole group.
        if !call.codable || call.inputs.guarded_by != coded.codes.turn {
            return;
        }
        let member = Member {
            query,
            instance,
            shape: call.shape,
            payload: Payload::Row(row.clone()),
            deadline: call.deadline(),
            late_at: self.dispatcher.late_at(query),
        };
        let load = self.dispatcher.load(now, self.pools[&call.pool.id].own);
        if let Some(Joined { group, size, slot }) = coded.coder.started(now, member, load) {
            let (k, slot) = (size as u8, slot as u8);
            self.step(now, row, Step::Grouped { group: group.data().as_ffi(), k, slot });
        }
    }

    /// Does what the coders ask for. Returns whether they asked for anything.
    pub(super) fn code(&mut self, now: Time) -> bool {
        let mut asked: SmallVec<[(PoolId, CodingAction<Payload, Output>); 4]> = SmallVec::new();
        for (pool, coded) in &mut self.coded {
            asked.extend(coded.coder.actions().map(|action| (*pool, action)));
        }
        let is_asked = !asked.is_empty();
        for (pool, action) in asked {
            match action {
                CodingAction::Encode { group, code, payloads } => {
                    match self.encoding(pool, group, code.k, &payloads) {
                        Some(encoding) => self.effects.push(Effect::Code(Box::new(Work::Encode(encoding)))),
                        None => {
                            self.coded.get_mut(&pool).into_iter().for_each(|own| own.coder.give_up(group))
                        }
                    }
                    self.effects.extend(payloads.into_iter().flatten().map(Effect::Discard));
                }
                CodingAction::Decode(decode) => {
                    let decodings = self.decodings(pool, &decode);
                    self.effects
                        .extend(decodings.into_iter().map(|own| Effect::Code(Box::new(Work::Decode(own)))));
                }
                CodingAction::Withdraw { parity } => {
                    let payload = self.dispatcher.cancel(now, parity);
                    if payload.is_some()
                        && let Some(coded) = self.coded.get_mut(&pool)
                    {
                        coded.coder.cancelled(now, parity);
                    }
                    self.effects.extend(payload.map(Effect::Discard));
                }
            }
        }
        is_asked
    }

    fn encoding(
        &self,
        pool: PoolId,
        key: GroupKey,
        k: usize,
        payloads: &[Option<Payload>],
    ) -> Option<Encoding> {
        let (coded, pool) = (self.coded.get(&pool)?, self.pools[&pool].pool.clone());
        let coder = coded.codes.coder(k)?.clone();
        let rows = || payloads.iter().map(|payload| payload.as_ref().and_then(Payload::row));
        if rows().flatten().any(|row| row.call.inputs.guarded_by != coded.codes.turn) {
            return None;
        }
        let members = rows().flatten().map(|row| (Arc::downgrade(&row.call), row.index)).collect();
        let slots = rows().map(|row| row.map(QueryRow::row)).collect();
        let group = Grouped { pool: pool.id, key, coder, members };
        Some(Encoding { group, pool, slots })
    }

    /// Submits the parities of a group.
    pub(super) fn encoded(&mut self, driver: &Driver, group: Grouped, made: Result<Vec<ParityQuery>, Error>) {
        let Some(lines) = self.pools.get(&group.pool) else { return };
        let (pool, model) = (lines.pool.clone(), lines.parity);
        // Parities leave some idle instances to queries, where instances run both.
        let takes = |at: &InstanceKey, key| self.dispatcher.takes(*at, key);
        let is_both = |at: &InstanceKey| model.is_some_and(|key| takes(at, key)) && takes(at, lines.own);
        let are_mixed = self.instances.keys().any(is_both);
        let queries = made.unwrap_or_else(|error| {
            self.coded.get_mut(&group.pool).into_iter().for_each(|coded| coded.failures[0] += 1);
            tracing::debug!(model = %pool.model.name, %error, "encoding failed");
            Vec::new()
        });
        self.react(driver, |state, now| {
            let Some(coded) = state.coded.get_mut(&group.pool) else { return };
            let (Some(deadline), Some(model), false) =
                (coded.coder.deadline(group.key), model, queries.is_empty())
            else {
                return coded.coder.give_up(group.key);
            };
            for (place, inputs) in queries.into_iter().enumerate() {
                let parity = Arc::new(Parity {
                    model: group.coder.model(place).map_or_else(|| pool.model.clone(), Arc::new),
                    pool: pool.clone(),
                    coder: group.coder.clone(),
                    inputs,
                    group: group.key,
                    members: group.members.clone(),
                    deadline,
                });
                let submission = Submission {
                    shape: parm_dispatcher::Shape { name: pool.shapes.alone(), size: 1 },
                    accept: Accept::Exact,
                    background: coded.is_background && are_mixed,
                    apart_from: coded.coder.instances(group.key),
                    ..Submission::new(model, Payload::Parity(parity), deadline)
                };
                let query = state.dispatcher.submit(now, submission);
                coded.coder.submitted(group.key, place, query);
            }
        });
    }

    fn decodings(&self, pool: PoolId, decode: &Decode<Output>) -> SmallVec<[Decoding; 1]> {
        let Some(pool) = self.pools.get(&pool).map(|lines| &lines.pool) else { return SmallVec::new() };
        let parity = decode.parities.iter().flatten().find_map(|output| output.parity.as_ref());
        let Some(parity) = parity else { return SmallVec::new() };
        let decoding = |(query, slot): &(QueryKey, usize)| {
            let row = self.dispatcher.payload(*query)?.row()?;
            Some(Decoding {
                group: decode.group,
                query: *query,
                row: row.clone(),
                pool: pool.clone(),
                coder: parity.coder.clone(),
                slot: *slot,
                members: decode.members,
                predictions: decode.predictions.clone(),
                parities: decode.parities.clone(),
            })
        };
        decode.lost.iter().filter_map(decoding).collect()
    }

    /// Offers a reconstruction, if it is sure enough.
    pub(super) fn decoded(&mut self, driver: &Driver, of: &Decoding, made: Result<Decoded, Error>) {
        let (outputs, confidence) = match made {
            Ok(decoded) => decoded,
            Err(error) => {
                self.coded.get_mut(&of.pool.id).into_iter().for_each(|coded| coded.failures[1] += 1);
                tracing::debug!(model = %of.pool.model.name, %error, "decoding failed");
                return;
            }
        };
        if let Some(confidence) = confidence {
            of.pool.metrics.coded(CodeMetric::Confidence).observe(f64::from(confidence));
        }
        let group = of.group.data().as_ffi();
        self.step(driver.clock.now(), &of.row, Step::Decoded { group, confidence });
        let least = of.pool.standing().map_or(0.0, |standing| standing.in_force.coding.min_confidence.get());
        // Outputs other than classes have no confidence and are only given if the least is 0.
        let is_sure = f64::from(confidence.unwrap_or(0.0)) >= least;
        self.coded.get_mut(&of.pool.id).into_iter().for_each(|coded| coded.coder.decoded(is_sure));
        if !is_sure {
            return;
        }
        let output = Output { confidence, group: Some(group), ..Output::of(Arc::new(outputs), 0) };
        self.react(driver, |state, now| {
            state.dispatcher.offer(now, of.query, output);
        });
        self.held_back_row(driver.clock.now(), of.query, &of.row);
    }
}
