//! Predictions are compared with what their parities say of them, and instances that are often wrong become suspect.
//!
//! With detection on, the outputs of a group are kept until all of them are in, or until they are old; its parities run
//! though everybody has their answer. The driver compares, off the dispatch path, and says of every prediction whether
//! the parities agree.

use super::arena::Key;
use super::dispatcher::Dispatcher;
use super::group::{Group, Stage, Watch};
use super::timers::Timer;
use super::{Action, Comparison, GroupId, Verdict};

impl Dispatcher {
    /// A group that is about to be closed is watched, if its pool is and not too many are.
    pub(super) fn watch(&mut self, key: Key<Group>) {
        let group = &mut self.groups[key];
        let pool = &mut self.pools[group.pool];
        if group.code.detect && pool.watched < pool.settings.spare_limit.get() {
            pool.watched += 1;
            group.watch = Watch::On;
            self.timers.set(self.now + pool.settings.coding.detection.max_wait, Timer::Watch(key));
        }
    }

    /// A watched group is old, or what it lacks will not come.
    pub(super) fn unwatch(&mut self, key: Key<Group>) {
        let Some(group) = self.groups.get_mut(key).filter(|group| group.watch == Watch::On) else { return };
        group.watch = Watch::Off;
        self.pools[group.pool].watched -= 1;
        self.finish_if_useless(key);
    }

    /// Something became known of a group: when that was the last thing missing, its outputs are compared.
    pub(super) fn compare(&mut self, key: Key<Group>) {
        let Some(group) = self.groups.get_mut(key).filter(|group| group.stage == Stage::Coded) else {
            return;
        };
        match group.complete() {
            _ if group.watch != Watch::On => self.finish_if_useless(key),
            None => self.unwatch(key),
            Some(false) => {}
            Some(true) => {
                let rows = group.slots.iter().map(|slot| slot.members.len()).max().unwrap_or(0);
                let rows = (0..rows as u16).map(|row| group.all_parts(row)).collect();
                group.watch = Watch::Asked;
                group.pending += 1;
                self.pools[group.pool].watched -= 1;
                self.out.push(Action::Compare(Box::new(Comparison { group: key.id(), rows })));
            }
        }
    }

    /// The driver has compared a group's predictions with its parities.
    pub(super) fn compared(&mut self, id: GroupId, verdicts: &[Verdict]) {
        let key = Key::from(id);
        let Some(group) = self.groups.get_mut(key).filter(|group| group.watch == Watch::Asked) else {
            return;
        };
        group.watch = Watch::Off;
        group.pending -= 1;
        let pool = group.pool;
        let of = |verdict: &Verdict| {
            let member = group.slots.get(usize::from(verdict.slot))?.members.get(verdict.row as usize)?;
            Some((verdict.slot, member.by?, verdict.agrees))
        };
        let answers: smallvec::SmallVec<[_; 8]> = verdicts.iter().filter_map(of).collect();
        // Where nobody agrees, the parity is as suspect as they are.
        if answers.iter().any(|(.., agrees)| *agrees) {
            for (at, (slot, instance, agrees)) in answers.iter().copied().enumerate() {
                // Its model may have been unloaded while the driver compared.
                let Some(known) = self.pools.get_mut(pool) else { break };
                known.counters.compared += 1;
                known.counters.disagreed += u64::from(!agrees);
                // One row of each batch counts as evidence.
                let same = |(other, by, _): &(u8, _, _)| (*other, *by) == (slot, instance);
                self.weigh(pool, instance, agrees, !answers[..at].iter().any(same));
            }
        }
        self.finish_if_useless(key);
        self.wrap_up(key);
    }
}
