//! More stories of a schedule.
//!
//! These are concurrent changes of settings, lapses of polled sources, settings at their ends, clients with a share of
//! approximate answers, and hung instances next to healthy ones.

use parm_settings::{Fraction, Placement, PolicyKind};
use serde_json::{Value, json};

use crate::extremes;
use crate::generate::Maker;
use crate::schedule::{Event, Lapse, Serving, Source, Temper, What, Worker};

/// Adds some of the stories.
pub(crate) fn widen(maker: &mut Maker) {
    let mut chance = |percent| maker.dice.percent(percent);
    let (meeting, lapsing, extreme, shared, thrifty, hanging) =
        (chance(30), chance(35), chance(25), chance(30), chance(30), chance(20));
    if hanging {
        maker.hangs_next_to_the_well();
    }
    if extreme {
        maker.setup.settings = extremes::settings(&mut maker.dice, &maker.setup.settings, 8);
    }
    if extreme && maker.dice.percent(60) {
        maker.patches_to_the_ends();
    }
    if meeting {
        maker.changes_meet();
    }
    if lapsing {
        maker.lapses();
    }
    if shared {
        maker.shares();
    }
    maker.setup.thrifty = thrifty;
    // Drawn last, so that the other stories of a seed stay the same.
    if maker.dice.percent(40) {
        maker.slow_for_long();
    }
    if maker.dice.percent(20) {
        maker.setup.settings.placement = Placement::Turns;
    }
    if maker.dice.percent(20) {
        maker.placement_changes();
    }
    if maker.dice.percent(25) {
        maker.stand_in_is_replaced();
    }
}

impl Maker {
    fn patches_to_the_ends(&mut self) {
        for _ in 0..self.dice.range(1, 4) {
            let of = self.dice.percent(40).then(|| self.model());
            let (at, patch) = (self.time(), extremes::patch(&mut self.dice));
            self.at(at, What::Settings(of, patch));
        }
    }

    /// Two or three patches at once, some while a model arrives or changes its version.
    fn changes_meet(&mut self) {
        for _ in 0..self.dice.range(1, 4) {
            let at = self.time();
            match self.dice.range(0, 3) {
                0 => {
                    let model = self.model();
                    self.at(at, What::Unload(model));
                    let back = at + self.dice.range(500, 3000);
                    self.at(back, What::Load(model));
                    // The load takes a few milliseconds: the change comes at its beginning, during it or after it.
                    let change = back + self.dice.range(0, 12);
                    let patches = self.patches();
                    self.at(change, What::Together(patches));
                }
                1 => {
                    self.update();
                    let served = |event: &&Event| matches!(event.what, What::Serve(..));
                    let last = self.events.iter().filter(served).map(|event| event.at).max().unwrap_or(at);
                    // The models of a server are known after the next description, within five seconds.
                    let change = last + self.dice.range(0, 5000);
                    let patches = self.patches();
                    self.at(change, What::Together(patches));
                }
                _ => {
                    let patches = self.patches();
                    self.at(at, What::Together(patches));
                }
            }
        }
    }

    /// A worker is slow for most of the time, but not so slow that it is ejected.
    fn slow_for_long(&mut self) {
        let (worker, from, by) = (self.worker(), self.dice.range(0, 3000), self.dice.range(2, 5));
        self.at(from, What::Temper(worker, Temper::Slow(by)));
        let until = from + self.dice.range(4000, self.length);
        self.at(until, What::Temper(worker, Temper::Well));
    }

    /// Queries take turns, and go by speed again.
    fn placement_changes(&mut self) {
        for placement in ["turns", "speed"] {
            let (of, at) = (self.dice.percent(40).then(|| self.model()), self.time());
            self.at(at, What::Settings(of, json!({ "placement": placement })));
        }
    }

    /// The stand-in is replaced by a model that no server has, and comes back, while its jobs run.
    fn stand_in_is_replaced(&mut self) {
        self.approximates();
        let mut at = self.time();
        while at < self.length {
            let model = self.dice.pick(&["cheap", "nobody"]);
            let of = self.dice.percent(50).then(|| self.model());
            let patch = json!({ "policy": "stand-in", "stand_in": { "model": model } });
            self.at(at, What::Settings(of, patch));
            at += self.dice.pick(&[3, 40, 400, 3000]);
        }
    }

    fn patches(&mut self) -> Vec<(Option<u8>, Value)> {
        let same = self.dice.percent(50).then(|| self.model());
        (0..self.dice.range(2, 4))
            .map(|_| {
                let of = if self.dice.percent(60) { same } else { Some(self.model()) };
                let policy = serde_json::to_value(self.dice.pick(&PolicyKind::ALL)).unwrap_or(Value::Null);
                let patch = match self.dice.range(0, 4) {
                    0 => json!({ "policy": policy }),
                    1 => json!({ "policy": policy, "batch": { "max_size": self.dice.pick(&[1, 4, 8]) } }),
                    2 => json!({ "queue_limit": self.dice.range(8, 200), "max_attempts": 3 }),
                    _ => json!({ "coding": { "k": self.dice.range(2, 4), "r": self.dice.range(1, 3) } }),
                };
                (of, patch)
            })
            .collect()
    }

    /// A polled source is missing, but back before the second poll.
    fn lapses(&mut self) {
        if self.setup.bundle && self.dice.percent(60) {
            // With the bundle's codes in effect their state is visible.
            self.setup.settings.policy = self.dice.pick(&[PolicyKind::Parm, PolicyKind::ParmPlus]);
        }
        let mut at = self.time() / 3;
        while at < self.length {
            let away = self.dice.range(50, 950);
            let names = self.of(Source::Dns).len();
            let what = match self.dice.range(0, 5) {
                0 | 4 if self.setup.bundle => What::NoBundles(away),
                1 if !self.of(Source::File).is_empty() => What::NoFile(away),
                2 if names > 0 => {
                    let short = Lapse::Short(self.dice.range(0, names as u64) as usize);
                    What::OneAnswer(self.dice.pick(&[Lapse::Empty, Lapse::Error, short]))
                }
                _ => {
                    let worker = self.dice.range(0, self.setup.workers.len() as u64) as usize;
                    let listed = self.setup_now(worker, at);
                    let Serving { model, .. } = self.dice.pick(&listed);
                    What::Unlisted(worker, model)
                }
            };
            self.at(at, what);
            // A correct answer between two lapses ends the first.
            at += self.dice.range(6500, 12_000);
        }
    }

    /// Clients that accept a share of approximate answers.
    fn shares(&mut self) {
        let shares = [Some(1), Some(10), Some(100), Some(250), Some(500), None];
        for event in &mut self.events {
            if let What::Ask(ask) = &mut event.what
                && !ask.exact
            {
                ask.share = self.dice.pick(&shares);
            }
        }
        if self.dice.percent(60) {
            self.approximates();
        }
    }

    fn approximates(&mut self) {
        self.setup.settings.policy = PolicyKind::StandIn;
        let own = &mut self.setup.settings.stand_in;
        own.bound = Fraction::percent(100);
        own.agreement.floor = Fraction::percent(0);
    }

    /// An instance hangs while two others are healthy and hedges have no limit.
    fn hangs_next_to_the_well(&mut self) {
        let like = self.setup.workers[0].clone();
        while self.setup.workers.len() < 4 {
            self.setup.workers.push(Worker { source: Source::Static, ..like.clone() });
        }
        let settings = &mut self.setup.settings;
        settings.policy = self.dice.pick(&[PolicyKind::Hedge, PolicyKind::StandIn, PolicyKind::ParmPlus]);
        for budget in [&mut settings.hedge.budget, &mut settings.retry] {
            (budget.ratio, budget.burst) = (Fraction::percent(50), 1_000_000);
        }
        settings.stand_in.hedge = true;
        settings.coding.parm_plus.hedge = true;
        settings.ejection.enabled = self.dice.percent(60);
        let (worker, from) = (self.worker(), self.time() / 2);
        self.at(from, What::Temper(worker, Temper::Hung));
        let until = from + self.dice.range(4000, 15_000);
        self.at(until, What::Temper(worker, Temper::Well));
    }
}
