//! Messages between frontends and the instances that they share: they are delayed, and messages about tokens can be lost.

use parm_dispatch::{InstanceId, Order, Wanted};
use parm_tokens::{Frontend, Message};

use crate::cluster::Work;
use crate::engine::{Engine, Happening, ToFront};

impl Engine<'_> {
    /// Delivers a job to an instance. A restarted instance ignores it: its frontends know that it left.
    pub(crate) fn given(&mut self, id: InstanceId, work: Work) {
        let instance = self.cluster.of(id);
        if self.cluster.id(instance) != id {
            return;
        }
        let end = self.cluster.give(instance, work, self.now);
        self.begins(end);
        self.deliver(instance, None);
    }

    /// Sends a frontend's order to an instance.
    pub(crate) fn send(&mut self, front: u32, id: InstanceId, order: Order<Wanted>) {
        self.tally.messages += 1;
        let order = match order {
            Order::Reserve(_, class, note, waited) => Order::Reserve((), class, note, waited),
            Order::Withdraw(_) => Order::Withdraw(()),
            Order::GiveBack(token) => Order::GiveBack(token),
        };
        if !self.is_lost() {
            self.note(self.now + self.run.fleet.delay, Happening::Told(id, front, order));
        }
    }

    /// Delivers that order.
    pub(crate) fn told(&mut self, id: InstanceId, front: u32, order: Order<()>) {
        let instance = self.cluster.of(id);
        if self.cluster.id(instance) == id {
            let end = self.cluster.told(instance, front, order, self.now);
            self.begins(end);
            self.deliver(instance, None);
        }
    }

    /// Checks the tokens of an instance.
    pub(crate) fn tick(&mut self, id: InstanceId) {
        let instance = self.cluster.of(id);
        if self.cluster.id(instance) == id {
            let end = self.cluster.tick(instance, self.now);
            self.begins(end);
            self.deliver(instance, None);
        }
    }

    /// Sends an instance's messages. Those to the frontend that receives an answer at this moment are not counted as
    /// messages.
    pub(crate) fn deliver(&mut self, instance: u32, answering: Option<u32>) {
        if !self.run.fleet.tokens {
            return;
        }
        let id = self.cluster.id(instance);
        let (mail, tick) = self.cluster.mail(instance, self.now);
        for (Frontend(front), message) in mail {
            let front = front as u32;
            let along = answering == Some(front) && matches!(message, Message::Granted(_));
            self.tally.messages += u64::from(!along);
            if !self.is_lost() {
                self.later(front, self.run.fleet.delay, ToFront::Token(id, message));
            }
        }
        if let Some(at) = tick {
            self.note(at, Happening::Tick(id));
        }
    }

    fn is_lost(&mut self) -> bool {
        self.run.fleet.loss > 0.0 && self.draw.uniform() < self.run.fleet.loss
    }
}
