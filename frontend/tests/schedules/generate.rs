//! Generates the schedule of a seed: traffic, and a few stories of faults and changes, which leave worker 0 and the first
//! upstream server well.

use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};

use parm_encoder::Kind;
use parm_settings::{Fraction, PolicyKind, PoolSettings};
use serde_json::{Value, json};

use crate::dice::Dice;
use crate::opaque::Errand;
use crate::schedule::{
    Ask, Event, Guilt, Model, Schedule, Serving, Setup, Source, Temper, Wanted, What, Worker,
};

struct Maker {
    dice: Dice,
    setup: Setup,
    models: u8,
    /// Number of upstream servers, which are the last workers.
    upstreams: usize,
    events: Vec<Event>,
    length: u64,
    /// Per thousand rows.
    bad: u64,
    /// Per hundred requests.
    impatient: u64,
}

pub(crate) fn schedule(seed: u64) -> Schedule {
    let mut dice = Dice::new(seed);
    let models = dice.range(1, 4) as u8;
    let workers = workers(&mut dice, models);
    let settings = settings(&mut dice);
    let upstreams = dice.pick(&[0, 0, 2, 3, 4]);
    let workers = workers.into_iter().chain((0..upstreams).map(|_| upstream())).collect();
    let setup = Setup { workers, settings };
    let length = dice.range(15, 40) * 1000;
    let (bad, impatient) = (if dice.percent(30) { dice.range(5, 60) } else { 0 }, 5);
    let mut maker = Maker { dice, setup, models, upstreams, events: Vec::new(), length, bad, impatient };
    for _ in 0..maker.dice.range(1, 7) {
        maker.story();
    }
    maker.traffic();
    if upstreams > 0 {
        maker.errands();
    }
    if maker.dice.percent(30) {
        maker.shares();
    }
    if maker.dice.percent(35) {
        maker.lapses();
    }
    let Maker { setup, mut events, length, .. } = maker;
    events.sort_by_key(|event| event.at);
    Schedule { seed, setup, events, length }
}

fn workers(dice: &mut Dice, models: u8) -> Vec<Worker> {
    let (count, quick) = (dice.range(2, 7), dice.pick(&[2, 5, 10]));
    let all: Vec<Serving> = (0..models).map(|model| serving(Model::Asked(model))).collect();
    let hesitates = dice.percent(5);
    (0..count)
        .map(|number| {
            let mut models = all.clone();
            if number > 0 && dice.percent(20) {
                models.remove(dice.range(0, models.len() as u64) as usize);
            }
            models.push(serving(Model::Cheap));
            let source = if number == 0 {
                Source::Static
            } else {
                dice.pick(&[Source::Static, Source::File, Source::Dns])
            };
            // Described one after the other, its models take longer than a single timeout.
            let question = if hesitates && number == 1 { dice.range(350, 500) } else { 0 };
            Worker { source, models, pace: (quick, 2 * quick), question }
        })
        .collect()
}

fn upstream() -> Worker {
    Worker { source: Source::Upstream, models: Vec::new(), pace: (4, 20), question: 0 }
}

fn serving(model: Model) -> Serving {
    Serving { model, version: 1, width: 2 }
}

fn settings(dice: &mut Dice) -> PoolSettings {
    let mut settings = PoolSettings { policy: dice.pick(&PolicyKind::ALL), ..PoolSettings::default() };
    settings.batch.max_size = NonZeroU16::new(dice.pick(&[1, 1, 4, 8])).expect("positive").into();
    settings.queue_limit = NonZeroU32::new(dice.pick(&[1024, 1024, 64, 16])).expect("positive");
    settings.max_attempts = NonZeroU8::new(dice.pick(&[3, 3, 2, 5])).expect("positive");
    settings.backup_model = Some(Model::Cheap.name());
    let coding = &mut settings.coding;
    coding.code = Some(Kind::Mds);
    coding.r = NonZeroU8::new(dice.pick(&[1, 2])).expect("positive");
    coding.k = NonZeroU8::new(dice.pick(&[2, 3])).expect("positive");
    coding.parm_plus.k_follows_load = dice.percent(50);
    coding.parm_plus.hedge = dice.percent(70);
    let stand_in = &mut settings.stand_in;
    stand_in.model = Some(Model::Cheap.name());
    stand_in.hedge = dice.percent(50);
    stand_in.bound = Fraction::percent(dice.pick(&[5, 100]));
    // The agreement is always below it.
    stand_in.agreement.floor = Fraction::percent(dice.pick(&[0, 0, 80]));
    settings
}

impl Maker {
    fn at(&mut self, at: u64, what: What) {
        if at < self.length {
            self.events.push(Event { at, what });
        }
    }

    /// A time at which a story may begin.
    fn time(&mut self) -> u64 {
        self.dice.range(500, self.length * 2 / 3)
    }

    /// Any worker but the first and the first upstream server.
    fn worker(&mut self) -> usize {
        let all = self.setup.workers.len();
        let first = all - self.upstreams;
        let faulty: Vec<usize> = (1..all).filter(|worker| *worker != first).collect();
        self.dice.pick(&faulty)
    }

    fn model(&mut self) -> u8 {
        self.dice.range(0, self.models.into()) as u8
    }

    fn story(&mut self) {
        match self.dice.range(0, 18) {
            0 => self.poison(),
            1 | 15 => self.hang(),
            2 => self.update(),
            3 => self.reshape(),
            4 | 5 => self.membership(),
            6 | 16 => self.unload(),
            7 => self.blips(),
            8 => self.change(),
            9 => self.burst(),
            17 => self.stand_in_is_replaced(),
            11 => self.bad = self.bad.max(30),
            12 if self.dice.percent(25) => {
                let at = self.time();
                self.at(at, What::Temper(1, Temper::Wrong));
            }
            _ => self.spell(),
        }
    }

    /// A client repeats inputs that make the model fail.
    fn poison(&mut self) {
        let (model, from) = (self.model(), self.time());
        let (until, every) = (from + self.dice.range(1000, 6000), self.dice.range(20, 300));
        for at in (from..until).step_by(every as usize) {
            let ask = Ask { rows: vec![Guilt::Poison], ..Ask::good(model) };
            self.at(at, What::Ask(ask));
        }
    }

    /// A server hangs for long, and clients are impatient.
    fn hang(&mut self) {
        let (worker, from) = (self.worker(), self.time() / 4);
        self.at(from, What::Temper(worker, Temper::Hung));
        let until = from + self.dice.range(12_000, 30_000);
        self.at(until, What::Temper(worker, Temper::Well));
        self.impatient = self.dice.pick(&[10, 100]);
        if self.dice.percent(40) {
            self.blips();
        }
    }

    /// A new version of a model comes to one server after the other.
    fn update(&mut self) {
        let (model, keep) = (Model::Asked(self.model()), self.dice.percent(30));
        let (mut at, pause) = (self.time(), self.dice.range(500, 7000));
        for worker in 0..self.setup.workers.len() {
            let own = &mut self.setup_now(worker, at);
            let Some(place) = own.iter().position(|own| own.model == model) else { continue };
            let next = Serving { version: 2, ..own[place] };
            if keep {
                own.push(next)
            } else {
                own[place] = next
            }
            self.at(at, What::Serve(worker, own.clone()));
            at += pause;
        }
    }

    /// A model is replaced by one of another shape and the same version, server by server.
    fn reshape(&mut self) {
        let (model, mut at) = (Model::Asked(self.models - 1), self.time());
        let pause = self.dice.range(500, 7000);
        for worker in 0..self.setup.workers.len() {
            let own = &mut self.setup_now(worker, at);
            own.iter_mut().filter(|own| own.model == model).for_each(|own| own.width = 3);
            self.at(at, What::Serve(worker, own.clone()));
            at += pause;
        }
    }

    /// Models that a worker is planned to have at a time.
    fn setup_now(&self, worker: usize, at: u64) -> Vec<Serving> {
        let changed = self.events.iter().filter(|event| event.at <= at);
        let last = changed.filter_map(|event| match &event.what {
            What::Serve(number, models) if *number == worker => Some((event.at, models)),
            _ => None,
        });
        last.max_by_key(|(at, _)| *at)
            .map_or_else(|| self.setup.workers[worker].models.clone(), |last| last.1.clone())
    }

    fn of(&self, source: Source) -> Vec<usize> {
        let workers = self.setup.workers.iter().enumerate();
        workers.filter(|(_, worker)| worker.source == source).map(|(number, _)| number).collect()
    }

    /// The file and the name list changing subsets of their workers; the file is often read when half written.
    fn membership(&mut self) {
        let mut at = self.time() / 2;
        while at < self.length {
            let source = self.dice.pick(&[Source::File, Source::Dns]);
            let mut named = self.of(source);
            if named.is_empty() {
                return;
            }
            if named.len() > 1 && self.dice.percent(50) {
                let place = self.dice.range(0, named.len() as u64);
                named.remove(place as usize);
            }
            let torn =
                self.dice.percent(60).then(|| (self.dice.pick(&[0, 0, 50, 90]), self.dice.range(50, 900)));
            let silent = self.dice.percent(20);
            let what = match source {
                Source::Dns if silent => What::Dns(Vec::new()),
                Source::Dns => What::Dns(named),
                _ => What::File(named, torn),
            };
            self.at(at, what);
            at += self.dice.range(3000, 12_000);
        }
    }

    fn unload(&mut self) {
        let (model, at) = (self.model(), self.time());
        self.at(at, What::Unload(model));
        let after = at + self.dice.range(500, 12_000);
        self.at(after, What::Load(model));
    }

    /// A server fails single jobs.
    fn blips(&mut self) {
        let mut at = self.time() / 2;
        while at < self.length {
            let worker = self.worker();
            self.at(at, What::Blip(worker));
            at += self.dice.range(1000, 4000);
        }
    }

    /// Changes settings for all models or for one.
    fn change(&mut self) {
        for _ in 0..self.dice.range(1, 4) {
            let of = self.dice.percent(40).then(|| self.model());
            let policy = serde_json::to_value(self.dice.pick(&PolicyKind::ALL)).unwrap_or(Value::Null);
            let size = self.dice.pick(&[1, 4, 8]);
            let patch = match self.dice.range(0, 4) {
                0 => json!({ "policy": policy, "batch": { "max_size": size } }),
                1 => json!({ "coding": { "k": self.dice.range(2, 4) } }),
                2 => {
                    json!({ "queue_limit": self.dice.range(8, 200), "coding": { "r": self.dice.range(1, 3) } })
                }
                _ => json!({ "policy": policy }),
            };
            let at = self.time();
            self.at(at, What::Settings(of, patch));
        }
    }

    fn burst(&mut self) {
        for _ in 0..self.dice.range(1, 4) {
            let at = self.time();
            for _ in 0..self.dice.range(10, 80) {
                let ask = self.ask();
                self.at(at, What::Ask(ask));
            }
        }
    }

    /// A polled list of members is missing or lacks one, and is right again at the next poll.
    fn lapses(&mut self) {
        let mut at = self.time() / 3;
        while at < self.length {
            let away = self.dice.range(50, 950);
            if !self.of(Source::File).is_empty() && self.dice.percent(50) {
                self.at(at, What::NoFile(away));
            } else {
                self.at(at, What::ShortAnswer);
            }
            // A correct answer between two lapses ends the first.
            at += self.dice.range(6500, 12_000);
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

    /// Clients accept a share of approximate answers.
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

    /// A server is faulty for a while.
    fn spell(&mut self) {
        let (worker, from) = (self.worker(), self.time());
        let one = Temper::FailingOne(self.model());
        let slow = Temper::Slow(self.dice.range(2, 40));
        let pieces = self.dice.range(0, 4) as usize;
        let of_upstreams = [
            Temper::Fails(self.dice.pick(&[500, 502, 503, 501, 400])),
            Temper::Cuts(pieces),
            Temper::Stalls(pieces),
        ];
        let is_upstream = self.setup.workers[worker].source == Source::Upstream;
        let temper = self.dice.pick(&[
            Temper::Hung,
            Temper::Deaf,
            Temper::Failing,
            one,
            Temper::Short,
            Temper::NotReady,
            Temper::Gone,
            slow,
        ]);
        let is_own = is_upstream && self.dice.percent(50);
        let temper = if is_own { self.dice.pick(&of_upstreams) } else { temper };
        self.at(from, What::Temper(worker, temper));
        let until = from + self.dice.range(200, 12_000);
        self.at(until, What::Temper(worker, Temper::Well));
    }

    /// Requests, in phases with their own rates.
    fn traffic(&mut self) {
        let (mut at, mut left) = (0, 1300);
        let quiet = self.dice.percent(15);
        while at < self.length && left > 0 {
            let until = at + self.dice.range(1000, 8000);
            let gap = if quiet { self.dice.range(300, 1500) } else { self.dice.pick(&[7, 15, 30, 60, 200]) };
            // Requests in clumps, with idle time between.
            let clump = self.dice.pick(&[1, 1, 3]);
            while at < until.min(self.length) && left > 0 {
                at += match left % clump {
                    0 => self.dice.range(0, 2 * clump * gap + 1),
                    _ => self.dice.range(0, 4),
                };
                let ask = self.ask();
                self.at(at, What::Ask(ask));
                left -= 1;
            }
        }
    }

    /// Requests for upstream servers.
    fn errands(&mut self) {
        let (mut at, gap) = (0, self.dice.pick(&[20, 60, 150]));
        while at < self.length {
            at += self.dice.range(1, 2 * gap);
            let errand = Errand::of(&mut self.dice);
            self.at(at, What::Forward(errand));
        }
    }

    fn ask(&mut self) -> Ask {
        let count = self.dice.pick(&[1, 1, 1, 1, 2, 3, 6]);
        let bad = self.bad;
        let rows = (0..count)
            .map(|_| if self.dice.range(0, 1000) < bad { Guilt::Bad } else { Guilt::Good })
            .collect();
        let impatient = self.impatient;
        let mut chance = |percent| self.dice.percent(percent);
        let (exact, timed, urgent) = (chance(10), chance(30), chance(10));
        let (biased, shifts, goes, sleeps, versioned) =
            (chance(5), chance(5), chance(impatient), chance(3), chance(5));
        Ask {
            model: self.model(),
            version: versioned.then_some(1),
            rows,
            timeout: timed.then(|| self.dice.pick(&[50, 200, 1000, 3000])),
            exact,
            share: None,
            priority: if urgent { self.dice.pick(&[1, 50, 255]) } else { 0 },
            bias: biased.then(|| self.dice.range(1, 9) as u8),
            shift: shifts.then(|| self.dice.range(1, 9) as u8),
            wanted: self.dice.pick(&[Wanted::All, Wanted::All, Wanted::Y, Wanted::Z]),
            patience: goes.then(|| self.dice.range(1, 150)),
            asleep: sleeps.then(|| self.dice.range(1, 3000)),
        }
    }
}
