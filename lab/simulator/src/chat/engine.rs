//! The driver of a replay: arrivals, iterations of the replicas, and the dispatcher's timers, in the order of time.

use std::collections::HashMap;
use std::time::Duration;

use parm_dispatch::{
    Accept, Action, Actions, Answer, Dispatcher, Event, InstanceId, InstanceSpec, JobId, JobSpec, PoolId,
    QueryId, QuerySpec, Served, Settings, ShapeId, Site, Time,
};
use parm_workload::chat::{Advance, Batch, Timed, Tokens};
use parm_workload::clock::Moment;
use parm_workload::{Ending, Error, Schedule};

use super::{Balancing, FirstTokens, Replay};
use crate::calendar::Calendar;

/// A request gives up after this time.
const DEADLINE: Duration = Duration::from_secs(600);

/// Bytes of a token of a prompt, in units of the dispatcher's sizes: four bytes, in units of 256.
const TOKENS_OF_A_SIZE: u32 = 64;

const POOL: PoolId = PoolId(0);

pub(super) struct ReplayEngine<'a> {
    replay: &'a Replay,
    now: Moment,
    calendar: Calendar<ReplayEvent>,
    replicas: Vec<Replica>,
    schedule: Schedule,
    requests: Vec<Request>,
    /// The request of each job that has no token yet.
    jobs: HashMap<u64, PromptJob>,
    next_job: u64,
    balancer: Balancer,
    /// Tokens of prompts of first jobs and of copies.
    read: [u64; 2],
}

#[derive(Clone, Debug)]
enum ReplayEvent {
    Arrives(usize),
    IterationEnds(usize),
    /// A request has waited for the fixed time.
    Waited(usize),
    Wakes,
    Probed(InstanceId, Option<PoolId>),
}

struct Replica {
    batch: Batch,
    busy: bool,
    /// Jobs that are not done.
    streams: usize,
}

struct Request {
    at: Moment,
    tokens: Tokens,
    first: Option<Moment>,
    copies: u8,
    /// The replica of its first job.
    place: usize,
}

struct PromptJob {
    request: usize,
    replica: usize,
}

enum Balancer {
    Turns(usize),
    Fewest(Option<Hedge>),
    Dispatched { dispatcher: Box<Dispatcher>, actions: Actions, wake: Moment, slots: u16 },
}

/// A copy after a fixed time.
#[derive(Clone, Copy)]
struct Hedge {
    after: Duration,
    share: f64,
    earned: f64,
}

impl<'a> ReplayEngine<'a> {
    pub(super) fn new(replay: &'a Replay, balancing: &Balancing) -> Result<Self, Error> {
        replay.costs.check()?;
        let balancer = match balancing {
            Balancing::RoundRobin => Balancer::Turns(0),
            Balancing::LeastRequests => Balancer::Fewest(None),
            Balancing::FixedHedge(after, share) => {
                Balancer::Fewest(Some(Hedge { after: *after, share: *share, earned: 10.0 }))
            }
            Balancing::Dispatched(settings, slots) => Balancer::Dispatched {
                dispatcher: Box::new(Dispatcher::new(Settings::uniform((**settings).clone()), replay.seed)),
                actions: Actions::new(),
                wake: Moment::NEVER,
                slots: *slots,
            },
        };
        let replica = || Replica { batch: Batch::new(replay.costs), busy: false, streams: 0 };
        let request = |of: &Timed| Request {
            at: Moment::START.later(of.seconds * 1e9),
            tokens: of.tokens,
            first: None,
            copies: 0,
            place: 0,
        };
        Ok(Self {
            replay,
            now: Moment::START,
            calendar: Calendar::new(),
            replicas: (0..replay.replicas).map(|_| replica()).collect(),
            schedule: Schedule::new(&replay.faults, replay.seed, replay.replicas)?,
            requests: replay.requests.iter().map(request).collect(),
            jobs: HashMap::new(),
            next_job: 0,
            balancer,
            read: [0; 2],
        })
    }

    pub(super) fn run(mut self) -> Result<FirstTokens, Error> {
        if let Balancer::Dispatched { slots, .. } = self.balancer {
            for replica in 0..self.replay.replicas {
                let spec =
                    InstanceSpec { serves: vec![served()], slots, site: Site::default(), learns: true };
                self.tell(Event::InstanceJoined(InstanceId(replica), spec));
            }
        }
        for (number, request) in self.requests.iter().enumerate() {
            self.calendar.note(request.at, ReplayEvent::Arrives(number));
        }
        let mut unanswered = self.requests.len();
        let last = self.requests.last().map_or(Moment::START, |last| last.at + DEADLINE);
        while unanswered > 0 && self.calendar.next_at() <= last {
            self.now = self.calendar.next_at();
            match self.calendar.take() {
                Some(ReplayEvent::Arrives(number)) => self.arrives(number),
                Some(ReplayEvent::IterationEnds(replica)) => unanswered -= self.iteration_ends(replica),
                Some(ReplayEvent::Waited(number)) => self.waited(number),
                Some(ReplayEvent::Wakes) => self.wakes(),
                Some(ReplayEvent::Probed(id, of)) => self.tell(Event::ProbeAnswered(id, of, true)),
                None => break,
            }
        }
        Ok(self.tally())
    }

    fn tally(self) -> FirstTokens {
        let counted = self.requests.iter().skip(self.replay.warm_up);
        let mut result = FirstTokens::default();
        for request in counted {
            match request.first {
                Some(first) => result.seconds.push(first.nanos_since(request.at) as f64 / 1e9),
                None => result.failed += 1,
            }
        }
        result.seconds.sort_unstable_by(f64::total_cmp);
        result.extra = self.read[1] as f64 / self.read[0].max(1) as f64;
        result
    }

    fn arrives(&mut self, number: usize) {
        let count = self.replicas.len();
        let place = match &mut self.balancer {
            Balancer::Turns(next) => {
                *next = (*next + 1) % count;
                *next
            }
            Balancer::Fewest(hedge) => {
                if let Some(hedge) = hedge {
                    hedge.earned += hedge.share;
                    self.calendar.note(self.now + hedge.after, ReplayEvent::Waited(number));
                }
                self.fewest(None)
            }
            Balancer::Dispatched { .. } => {
                let query = QuerySpec {
                    id: QueryId(number as u64),
                    pool: POOL,
                    shape: ShapeId(number as u32 + 1),
                    deadline: time(self.now + DEADLINE),
                    priority: 0,
                    share: None,
                    accept: Accept::Any,
                    codable: false,
                    size: (self.requests[number].tokens.prompt / TOKENS_OF_A_SIZE).max(1),
                    padded: false,
                };
                return self.tell(Event::QueryArrived(query));
            }
        };
        let job = self.next_job;
        self.next_job += 1;
        self.start(job, number, place);
    }

    /// The replica with the fewest streams, other than this one. Equal ones take turns by the number of jobs.
    fn fewest(&self, but: Option<usize>) -> usize {
        let count = self.replicas.len();
        let from = self.next_job as usize % count;
        let places = (0..count).map(|step| (from + step) % count).filter(|place| Some(*place) != but);
        places.min_by_key(|place| self.replicas[*place].streams).unwrap_or(from)
    }

    fn waited(&mut self, number: usize) {
        let Balancer::Fewest(Some(hedge)) = &mut self.balancer else { return };
        if self.requests[number].first.is_some() || hedge.earned < 1.0 {
            return;
        }
        hedge.earned -= 1.0;
        let (job, place) = (self.next_job, self.fewest(Some(self.requests[number].place)));
        self.next_job += 1;
        self.start(job, number, place);
    }

    /// Gives a request to a replica.
    fn start(&mut self, job: u64, number: usize, place: usize) {
        let request = &mut self.requests[number];
        self.read[usize::from(request.copies > 0)] += u64::from(request.tokens.prompt);
        if request.copies == 0 {
            request.place = place;
        }
        request.copies += 1;
        self.jobs.insert(job, PromptJob { request: number, replica: place });
        let replica = &mut self.replicas[place];
        replica.streams += 1;
        replica.batch.arrive(job, request.tokens);
        if !replica.busy {
            self.iterate(place);
        }
    }

    /// Starts an iteration.
    fn iterate(&mut self, place: usize) {
        let replica = &mut self.replicas[place];
        let ending = replica.batch.begin_under(&mut self.schedule, place as u32, self.now);
        replica.busy = ending.is_some();
        if let Some(Ending::Answered { at, .. }) = ending {
            self.calendar.note(at, ReplayEvent::IterationEnds(place));
        }
    }

    /// Returns how many requests got their first token.
    fn iteration_ends(&mut self, place: usize) -> usize {
        let mut advances = Vec::new();
        self.replicas[place].batch.end(&mut advances);
        let mut firsts = 0;
        for Advance { id, done, .. } in advances {
            self.replicas[place].streams -= usize::from(done);
            let Some(job) = self.jobs.remove(&id) else { continue };
            let request = &mut self.requests[job.request];
            if request.first.is_none() {
                request.first = Some(self.now);
                firsts += 1;
            } else if !done {
                self.replicas[place].batch.leave(id);
                self.replicas[place].streams -= 1;
            }
            match self.balancer {
                Balancer::Dispatched { .. } => self.tell(Event::JobCompleted(JobId(id))),
                _ => self.cancel_others(job.request),
            }
        }
        self.iterate(place);
        firsts
    }

    /// Cancels the other jobs of a request.
    fn cancel_others(&mut self, number: usize) {
        if self.requests[number].copies < 2 {
            return;
        }
        let others: Vec<u64> =
            self.jobs.iter().filter(|(_, job)| job.request == number).map(|(id, _)| *id).collect();
        for id in others {
            if let Some(job) = self.jobs.remove(&id)
                && self.replicas[job.replica].batch.leave(id)
            {
                self.replicas[job.replica].streams -= 1;
            }
        }
    }

    fn wakes(&mut self) {
        let Balancer::Dispatched { wake, .. } = &mut self.balancer else { return };
        if *wake == self.now {
            *wake = Moment::NEVER;
            self.tell(Event::TimerFired);
        }
    }

    /// Passes an event to the dispatcher and executes its actions.
    fn tell(&mut self, event: Event) {
        let Balancer::Dispatched { dispatcher, actions, .. } = &mut self.balancer else { return };
        let mut actions = std::mem::take(actions);
        dispatcher.on_event(time(self.now), event, &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Run(JobSpec { id, instance, .. }, rows) => {
                    rows.iter().for_each(|query| self.start(id.0, query.0 as usize, instance.0 as usize));
                }
                Action::WakeAt(at) => {
                    let at = Moment::from_nanos(at.since(Time::ZERO).as_nanos() as u64).max(self.now);
                    if let Balancer::Dispatched { wake, .. } = &mut self.balancer {
                        *wake = at;
                    }
                    self.calendar.note(at, ReplayEvent::Wakes);
                }
                Action::Probe(id, of) => {
                    let at = self.now + Duration::from_millis(1);
                    self.calendar.note(at, ReplayEvent::Probed(id, of));
                }
                Action::Answer(_, Answer::Rejected(_)) | Action::Answer(..) => {}
                _ => {}
            }
        }
        if let Balancer::Dispatched { actions: kept, .. } = &mut self.balancer {
            *kept = actions;
        }
    }
}

fn served() -> Served {
    Served { parity: false, backup: false, stand_in: false, ..Served::all(POOL) }
}

fn time(at: Moment) -> Time {
    Time::ZERO + Duration::from_nanos(at.as_nanos())
}
