//! Coding groups in the world: encoding and decoding take no time, and a parity model computes what a linear model would.
//!
//! The prediction for a query is its number. So a reconstruction from wrong parts is a wrong number, which tests see.

use parm_dispatcher::{
    Coder, CodingAction, CodingSettings, Decode, Dispatcher, InstanceKey, Member, ModelKey, ModelSettings,
    Policy, Row, Submission,
};

use crate::{Event, World, note};

/// The groups of a world.
pub struct Coded {
    /// The books of the groups.
    pub coder: Coder<u64, u64>,
    /// Predictions that were decoded.
    pub decoded: u64,
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
        Self { coder: Coder::new(settings.clone()), decoded: 0, parities, is_apart }
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

    /// Executes the coder's actions.
    pub(crate) fn code(&mut self) {
        let Some(coded) = &mut self.coded else { return };
        let actions: Vec<_> = coded.coder.actions().collect();
        if actions.is_empty() {
            return;
        }
        for action in actions {
            match action {
                CodingAction::Encode { group, code, payloads } => {
                    let Some(deadline) = coded.coder.deadline(group) else { continue };
                    let models = coded.parities.iter().find(|(k, _)| *k == code.k);
                    for (parity, model) in models.into_iter().flat_map(|(_, models)| models).enumerate() {
                        let query = Submission {
                            background: !coded.is_apart,
                            ..Submission::new(*model, encode(&payloads, parity), deadline)
                        };
                        let key = self.dispatcher.submit(self.now, query.clone());
                        note(&mut self.log, || Event::Arrived(key, query));
                        coded.coder.submitted(group, parity, key);
                    }
                }
                CodingAction::Decode(of) => {
                    coded.decoded += of.lost.len() as u64;
                    for (query, slot) in &of.lost {
                        if let Some(number) = decode(&of, *slot) {
                            note(&mut self.log, || Event::Offered(*query));
                            self.dispatcher.offer(self.now, *query, number);
                        }
                    }
                }
                CodingAction::Withdraw { parity } => {
                    if self.dispatcher.cancel(self.now, parity).is_some() {
                        note(&mut self.log, || Event::Left(parity));
                        coded.coder.cancelled(self.now, parity);
                    }
                }
            }
        }
        self.execute();
    }
}

/// The weight of a slot in a parity: any losses up to the number of parities can be solved for.
fn weight(slot: usize, parity: usize) -> u64 {
    (slot as u64 + 1).pow(parity as u32)
}

fn encode(payloads: &[Option<u64>], parity: usize) -> u64 {
    let weighted = |(slot, number): (usize, &Option<u64>)| weight(slot, parity) * number.unwrap_or_default();
    payloads.iter().enumerate().map(weighted).sum()
}

/// The prediction of a slot. Up to two are missing at a time.
fn decode(of: &Decode<u64>, slot: usize) -> Option<u64> {
    let missing: Vec<usize> = of.members.iter().filter(|at| of.predictions[*at].is_none()).collect();
    let here: Vec<usize> = (0..of.parities.len()).filter(|at| of.parities[*at].is_some()).collect();
    // What the missing ones add up to in a parity.
    let left = |parity: usize| Some(of.parities[parity]? - encode(&of.predictions, parity));
    match (&missing[..], &here[..]) {
        ([_], [parity, ..]) => Some(left(*parity)? / weight(slot, *parity)),
        ([one, other], [first, second]) => {
            let other = if slot == *one { *other } else { *one };
            let of = |slot, parity: &usize| weight(slot, *parity) as i64;
            let determinant = of(slot, first) * of(other, second) - of(other, first) * of(slot, second);
            let solved = left(*first)? as i64 * of(other, second) - left(*second)? as i64 * of(other, first);
            u64::try_from(solved / determinant).ok()
        }
        _ => None,
    }
}
