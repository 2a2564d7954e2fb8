//! Several frontends with shared workers, in random schedules with lost messages and crashes.
//!
//! Messages are late, lost or duplicated, and frontends and workers stop. Every query is answered once, no
//! frontend starves, and every token is returned.

use crate::script::one_by_one;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::num::NonZeroU16;
use std::time::Duration;

use parm_dispatch::{
    Accept, Action, Actions, Answer, Class, Dispatcher, Elsewhere, Event, InstanceId, InstanceSpec, JobId,
    JobSpec, Judgement, Order, PoolId, QueryId, QuerySpec, Reject, Served, Settings, ShapeId, Site, Time,
    Token,
};
use parm_settings::{Cost, PolicyKind, PoolSettings};
use parm_tokens::{Arrivals, Desk, Frontend, Message};
use proptest::prelude::*;

const POOL: PoolId = PoolId(0);
const SERVICE_US: u64 = 10_000;
/// Long enough that only starvation makes a query miss it.
const DEADLINE: Duration = Duration::from_secs(20);

/// The steps of a schedule.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    fronts: usize,
    workers: usize,
    slots: usize,
    /// Instances of each worker that are reserved and unused.
    kept: usize,
    policy: PolicyKind,
    /// In percent.
    lost: u64,
    doubled: u64,
    /// Longest delay of a message.
    delay_us: u64,
    queries: u64,
    /// A frontend and a worker that stop halfway, if they exist.
    dying_front: Option<usize>,
    dying_worker: Option<usize>,
    /// A frontend without tokens.
    old_front: Option<usize>,
    /// No worker gives tokens, and frontends report their jobs to each other.
    told: bool,
}

fn plans() -> impl Strategy<Value = Plan> {
    let policy = prop_oneof![
        Just(PolicyKind::Equal),
        Just(PolicyKind::Hedge),
        Just(PolicyKind::Replicate),
        Just(PolicyKind::StandIn)
    ];
    let chance = (0..10u64, 0..10u64, 0..3000u64, 50..200u64);
    let deaths =
        (proptest::option::of(0..4usize), proptest::option::of(0..6usize), proptest::option::of(0..6usize));
    let shape = (2..5usize, 2..7usize, 1..3usize, 0..3usize);
    (any::<u64>(), shape, policy, chance, deaths).prop_map(
        |(seed, (fronts, workers, slots, kept), policy, (lost, doubled, delay_us, queries), deaths)| Plan {
            seed,
            fronts,
            workers,
            slots,
            kept,
            policy,
            lost,
            doubled,
            delay_us,
            queries,
            dying_front: deaths.0,
            dying_worker: deaths.1,
            old_front: deaths.2,
            told: false,
        },
    )
}

#[derive(Clone, Debug)]
enum Happens {
    Arrives(usize, u64),
    Wake(usize),
    /// At a frontend.
    Ends(usize, JobId),
    Token(usize, usize, Message),
    /// At a worker.
    Job(usize, usize, JobSpec),
    Order(usize, usize, Order<()>),
    Done(usize, u64),
    Tick(usize),
    FrontDies(usize),
    WorkerDies(usize),
    /// A report arrives about the jobs of another frontend at a worker.
    Beside(usize, usize, usize, u16),
}

struct Work {
    front: usize,
    job: JobSpec,
}

struct Worker {
    desk: Desk<()>,
    promised: VecDeque<Work>,
    waiting: BTreeMap<(Class, u64), Work>,
    running: BTreeMap<u64, Work>,
    arrivals: Arrivals,
    /// Jobs that were started.
    next: u64,
    /// The next look at its tokens.
    tick: Option<u64>,
    alive: bool,
}

struct Fleet {
    plan: Plan,
    now: u64,
    random: u64,
    order: u64,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Happens>,
    fronts: Vec<Option<Dispatcher>>,
    workers: Vec<Worker>,
    /// The reported jobs of other frontends, by receiver, sender and worker.
    held: BTreeMap<(usize, JobId), usize>,
    heard: BTreeMap<(usize, usize, usize), u16>,
    /// Queries without an answer, by frontend.
    open: BTreeSet<(usize, QueryId)>,
}

impl Fleet {
    fn new(plan: Plan) -> Self {
        let mut settings = PoolSettings { policy: plan.policy, ..one_by_one() };
        // Only crashes fail jobs here, and no query should be rejected for lack of budget.
        settings.retry.burst = 10_000;
        let front = |seed| Some(Dispatcher::new(Settings::uniform(settings.clone()), seed));
        let worker = |_| {
            let mut desk = Desk::new(plan.slots, parm_tokens::Settings::default());
            desk.keep(plan.kept);
            Worker {
                desk,
                promised: VecDeque::new(),
                waiting: BTreeMap::new(),
                running: BTreeMap::new(),
                arrivals: Arrivals::default(),
                next: 0,
                tick: None,
                alive: true,
            }
        };
        Self {
            fronts: (0..plan.fronts as u64).map(front).collect(),
            workers: (0..plan.workers).map(worker).collect(),
            random: plan.seed,
            now: 0,
            order: 0,
            heap: BinaryHeap::new(),
            events: BTreeMap::new(),
            held: BTreeMap::new(),
            heard: BTreeMap::new(),
            open: BTreeSet::new(),
            plan,
        }
    }

    /// A number below a bound (SplitMix64).
    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % below.max(1)
    }

    fn at(&mut self, us: u64, what: Happens) {
        self.order += 1;
        self.heap.push(Reverse((us, self.order)));
        self.events.insert(self.order, what);
    }

    /// Sends a message about tokens: late, lost, or duplicated.
    fn mail(&mut self, what: &Happens) {
        let times = match self.draw(100) {
            chance if chance < self.plan.lost => 0,
            chance if chance < self.plan.lost + self.plan.doubled => 2,
            _ => 1,
        };
        for _ in 0..times {
            let delay = self.draw(self.plan.delay_us);
            self.at(self.now + delay, what.clone());
        }
    }

    fn run(mut self) {
        for worker in 0..self.plan.workers {
            for front in 0..self.plan.fronts {
                let spec = InstanceSpec {
                    serves: vec![Served::all(POOL)],
                    // The setting is 1 by default, however many instances a worker has.
                    slots: if self.plan.told || self.plan.seed.is_multiple_of(2) {
                        self.plan.slots as u16
                    } else {
                        1
                    },
                    site: Site::default(),
                    learns: false,
                };
                let id = InstanceId(worker as u32);
                self.tell(front, Event::InstanceJoined(id, spec));
                self.tell(front, Event::StandInCost(POOL, Cost::linear(0.25)));
                if self.plan.told {
                    self.hears(front, worker);
                } else if self.plan.old_front != Some(front) {
                    self.workers[worker].desk.join(Frontend(front as u64));
                    self.tell(front, Event::TokensOffered(id));
                }
            }
        }
        // Approximately 70 % of the capacity of the smallest fleet.
        let left =
            self.plan.workers - usize::from(self.plan.dying_worker.is_some_and(|at| at < self.plan.workers));
        let pause = SERVICE_US * 10 / 7 / (left * self.plan.slots) as u64;
        let mut at = 0;
        for query in 0..self.plan.queries {
            at += self.draw(2 * pause);
            let front = self.draw(self.plan.fronts as u64) as usize;
            self.at(at, Happens::Arrives(front, query));
        }
        let front = self.plan.dying_front.filter(|front| *front < self.plan.fronts);
        front.into_iter().for_each(|front| self.at(at / 2, Happens::FrontDies(front)));
        let worker = self.plan.dying_worker.filter(|worker| *worker < self.plan.workers);
        worker.into_iter().for_each(|worker| self.at(at / 3, Happens::WorkerDies(worker)));
        while let Some(Reverse((at, order))) = self.heap.pop() {
            self.now = at;
            let what = self.events.remove(&order).expect("noted");
            self.happens(what);
            assert!(self.order < 2_000_000, "they never come to rest");
        }
        assert!(self.open.is_empty(), "never answered: {:?}", self.open);
        self.at_rest(front.is_some());
    }

    /// After the last event all tokens are returned and no query waits.
    fn at_rest(&self, somebody_died: bool) {
        for worker in self.workers.iter().filter(|worker| worker.alive) {
            assert!(worker.running.is_empty() && worker.waiting.is_empty() && worker.promised.is_empty());
            // A frontend that is alone keeps them.
            let takes_part =
                self.plan.fronts - usize::from(self.plan.old_front.is_some_and(|at| at < self.plan.fronts));
            if takes_part > 1 && !somebody_died && !self.plan.told {
                assert_eq!((worker.desk.out(), worker.desk.home()), (0, self.plan.slots));
                assert!(worker.desk.reservations().is_empty());
            }
        }
    }

    fn happens(&mut self, what: Happens) {
        match what {
            Happens::Arrives(front, query) => {
                if self.fronts[front].is_some() {
                    let id = QueryId(query);
                    self.open.insert((front, id));
                    let deadline = Time::from_nanos(self.now * 1000) + DEADLINE;
                    let (shape, priority, accept) = (ShapeId(0), 0, Accept::Any);
                    let spec = QuerySpec {
                        id,
                        pool: POOL,
                        shape,
                        deadline,
                        priority,
                        share: None,
                        accept,
                        codable: true,
                        size: 1,
                        padded: false,
                    };
                    self.tell(front, Event::QueryArrived(spec));
                }
            }
            Happens::Wake(front) => self.tell(front, Event::TimerFired),
            Happens::Ends(front, job) => {
                let worker = self.held.remove(&(front, job));
                worker.into_iter().for_each(|worker| self.says(front, worker));
                self.tell(front, Event::JobCompleted(job));
            }
            Happens::Beside(front, other, worker, jobs) => {
                self.heard.insert((front, other, worker), jobs);
                self.hears(front, worker);
            }
            Happens::Token(front, worker, Message::Granted(grant)) => {
                self.tell(front, Event::TokenGranted(InstanceId(worker as u32), grant));
            }
            Happens::Token(front, worker, Message::Recalled(token)) => {
                self.tell(front, Event::TokenRecalled(InstanceId(worker as u32), token));
            }
            Happens::Token(front, worker, Message::Alone(slots)) => {
                self.tell(front, Event::TokensShared(InstanceId(worker as u32), NonZeroU16::new(slots)));
            }
            Happens::Token(front, worker, Message::Shared) => {
                self.tell(front, Event::TokensShared(InstanceId(worker as u32), None));
            }
            Happens::Job(worker, front, job) => self.given(worker, front, job),
            Happens::Order(worker, front, order) => {
                let here = &mut self.workers[worker];
                let number = here.arrivals.number(Duration::from_micros(self.now));
                here.desk.told(Frontend(front as u64), order, number);
                self.proceed(worker, None);
            }
            Happens::Done(worker, number) => self.done(worker, number),
            Happens::Tick(worker) => {
                self.workers[worker].tick = None;
                self.proceed(worker, None);
            }
            Happens::FrontDies(front) => {
                self.fronts[front] = None;
                self.open.retain(|(of, _)| *of != front);
                self.held.retain(|(of, _), _| *of != front);
                self.heard.retain(|(_, other, _), _| *other != front);
                for worker in 0..self.workers.len() {
                    let here = &mut self.workers[worker];
                    here.desk.leave(Frontend(front as u64));
                    here.waiting.retain(|_, work| work.front != front);
                    let before = here.promised.len();
                    here.promised.retain(|work| work.front != front);
                    (here.promised.len()..before).for_each(|_| here.desk.let_go());
                    self.proceed(worker, None);
                    (0..self.fronts.len()).for_each(|other| self.hears(other, worker));
                }
            }
            Happens::WorkerDies(worker) => {
                self.workers[worker].alive = false;
                self.held.retain(|_, at| *at != worker);
                for front in 0..self.fronts.len() {
                    self.tell(front, Event::InstanceLeft(InstanceId(worker as u32)));
                }
            }
        }
    }

    fn tell(&mut self, front: usize, event: Event) {
        let Some(dispatcher) = &mut self.fronts[front] else { return };
        let mut actions = Actions::new();
        dispatcher.on_event(Time::from_nanos(self.now * 1000), event, &mut actions);
        for action in actions {
            match action {
                Action::Run(job, _) => {
                    let worker = job.instance.0 as usize;
                    self.held.insert((front, job.id), worker);
                    self.says(front, worker);
                    let delay = self.draw(self.plan.delay_us);
                    self.at(self.now + delay, Happens::Job(job.instance.0 as usize, front, job));
                }
                Action::Answer(query, answer) => {
                    assert!(self.open.remove(&(front, query)), "{query:?} was answered twice");
                    assert_ne!(answer, Answer::Rejected(Reject::Deadline), "{query:?} starved");
                }
                Action::WakeAt(at) => {
                    let at = at.as_nanos().div_ceil(1000).max(self.now);
                    self.at(at, Happens::Wake(front));
                }
                Action::Tell(id, order) => {
                    let order = match order {
                        Order::Reserve(_, class, note, waited) => {
                            assert_ne!(class, Class::Spare, "spare work reserves nothing");
                            Order::Reserve((), class, note, waited)
                        }
                        Order::Withdraw(_) => Order::Withdraw(()),
                        Order::GiveBack(token) => Order::GiveBack(token),
                    };
                    self.mail(&Happens::Order(id.0 as usize, front, order));
                }
                Action::Judge(query, output) => {
                    let event = Event::Judged(query, output, Judgement::Fit(None));
                    self.tell(front, event);
                }
                Action::Check(pair) => self.tell(front, Event::Checked(pair, Some(true))),
                Action::Probe(id, pool) => self.tell(front, Event::ProbeAnswered(id, pool, true)),
                _ => {}
            }
        }
    }

    /// Reports a frontend's jobs at a worker to the others: late, lost, or duplicated.
    fn says(&mut self, front: usize, worker: usize) {
        if self.plan.told {
            let held = self.held.iter().filter(|((of, _), at)| *of == front && **at == worker).count();
            let others = (0..self.plan.fronts).filter(|other| *other != front);
            let others: Vec<_> = others.collect();
            others
                .into_iter()
                .for_each(|other| self.mail(&Happens::Beside(other, front, worker, held as u16)));
        }
    }

    /// Sends the reports about a worker to the frontend's dispatcher.
    fn hears(&mut self, front: usize, worker: usize) {
        if self.plan.told {
            let jobs =
                (0..self.plan.fronts).filter_map(|other| self.heard.get(&(front, other, worker))).sum();
            let home = worker % self.plan.fronts == front;
            self.tell(front, Event::HeldElsewhere(InstanceId(worker as u32), Elsewhere { jobs, home }));
        }
    }

    fn given(&mut self, worker: usize, front: usize, job: JobSpec) {
        if !self.workers[worker].alive || self.fronts[front].is_none() {
            return; // the frontend knows that it left, or is no more
        }
        let here = &mut self.workers[worker];
        let number = here.arrivals.number(Duration::from_micros(self.now));
        let redeemed = job.token.is_some_and(|token: Token| here.desk.redeem(Frontend(front as u64), token));
        let work = Work { front, job };
        if redeemed && (job.class != Class::Spare || !here.desk.is_wanted()) {
            here.promised.push_back(work);
            self.proceed(worker, None);
            let kept = self.workers[worker]
                .running
                .values()
                .any(|work| (work.front, work.job.id) == (front, job.id));
            assert!(kept, "{job:?} had a token and had to wait");
            return;
        }
        if redeemed {
            here.desk.let_go();
        }
        here.waiting.insert((job.class, number), work);
        self.proceed(worker, None);
    }

    fn done(&mut self, worker: usize, number: u64) {
        let Some(work) = self.workers[worker].running.remove(&number) else { return };
        if !self.workers[worker].alive {
            return;
        }
        self.workers[worker].desk.end();
        self.proceed(worker, Some(work.front));
        let delay = self.draw(self.plan.delay_us);
        self.at(self.now + delay, Happens::Ends(work.front, work.job.id));
    }

    /// Starts jobs that may start, and sends the messages of the worker.
    fn proceed(&mut self, worker: usize, ended: Option<usize>) {
        let now = Duration::from_micros(self.now);
        let here = &mut self.workers[worker];
        if !here.alive {
            return;
        }
        here.desk.tick(now);
        loop {
            let first = here.waiting.keys().next().copied();
            let may = here.desk.settle(now, first, |known| (known.class, known.number));
            let promised = here.promised.pop_front();
            let redeemed = promised.is_some();
            let next =
                promised.or_else(|| may.then(|| here.waiting.pop_first()).flatten().map(|(_, work)| work));
            let Some(work) = next else { break };
            let urgent = |class| here.desk.reservations().iter().any(|known| known.class < class);
            assert!(
                redeemed || work.job.class != Class::Spare || !urgent(Class::Spare),
                "spare before a query"
            );
            here.desk.begin(redeemed, now);
            here.next += 1;
            here.running.insert(here.next, work);
            assert!(here.running.len() <= self.plan.slots, "more jobs than instances");
            let at = self.now + SERVICE_US;
            self.order += 1;
            self.heap.push(Reverse((at, self.order)));
            self.events.insert(self.order, Happens::Done(worker, here.next));
        }
        if let Some(front) = ended.filter(|_| here.waiting.is_empty()) {
            here.desk.stick(Frontend(front as u64), now);
        }
        let mail = here.desk.mail();
        let next = here.desk.tick(now).map(|at| (at.as_micros() as u64).max(self.now + 1));
        let sooner = next.filter(|at| here.tick.is_none_or(|noted| *at < noted));
        here.tick = sooner.or(here.tick);
        for (Frontend(front), message) in mail {
            self.mail(&Happens::Token(front as usize, worker, message));
        }
        if let Some(at) = sooner {
            self.at(at, Happens::Tick(worker));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn queries_are_answered_and_tokens_return_despite_lost_messages(plan in plans()) {
        Fleet::new(plan).run();
    }

    #[test]
    fn no_frontend_starves_whatever_reports_arrive(plan in plans()) {
        Fleet::new(Plan { told: true, ..plan }).run();
    }
}
