//! Several tenants over the same four servers: each gets its share of their time under a flood of another.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use parm_dispatcher::{ModelSettings, Payer, Policy, ShareKey, Submission, Terms, Time};
use parm_lab::world::{Plan, World};
use parm_workload::Scenario;
use parm_workload::distribution::Distribution;
use parm_workload::service::Service;

const MS: Duration = Duration::from_millis(1);
const HEAVY: Duration = Duration::from_millis(100);
const LIGHT: Duration = Duration::from_millis(5);
const LENGTH: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
struct Tenant {
    /// The share that is configured for it; `None` for its model's own.
    share: Option<Terms>,
    /// Its model, which all tenants with this number share, and the time of a run, which varies by a tenth.
    model: u32,
    service: Duration,
    demand: Demand,
}

#[derive(Clone, Copy)]
enum Demand {
    /// So many clients, each of which sends its next query when it is answered.
    Clients(u32),
    /// One query per period.
    Every(Duration),
}

/// What a tenant got.
#[derive(Debug, Default)]
struct Bill {
    /// Seconds of servers, for answers that it got or not.
    used: f64,
    /// Copies of its model's queries.
    copies: u64,
    /// From each query to its answer.
    latencies: Vec<Duration>,
}

fn simulate(tenants: &[Tenant], policy: Policy) -> Vec<Bill> {
    let settings = ModelSettings { policy, queue_limit: 1 << 16, ..ModelSettings::default() };
    let time_ms = Distribution::Uniform { min: 0.9, max: 1.1 };
    let plan = Plan::new(1, 0, &Scenario::named("clean").expect("it is built in"), 1.0);
    let service = Service { time_ms, ..Service::default() };
    let mut world = World::new(&Plan { service, instances: 4, ..plan }).expect("the plan is valid");
    let mut models = BTreeMap::new();
    for tenant in tenants {
        let model = *models.entry(tenant.model).or_insert_with(|| world.dispatcher.add_model(settings));
        let millis = tenant.service.as_secs_f64() * 1e3;
        world.costs.insert(model, Box::new(move |_| millis));
    }
    (0..4).for_each(|server| world.serve(server, models.values().copied().collect(), 1));
    let payer = |number: usize| match tenants[number].share {
        Some(_) => Payer::Share(ShareKey(number as u32)),
        None => Payer::Model(models[&tenants[number].model]),
    };
    let shares: Vec<_> = (0..tenants.len()).filter_map(|at| Some((payer(at), tenants[at].share?))).collect();
    world.dispatcher.promise(&shares);
    let mut due = BinaryHeap::new();
    for (number, tenant) in tenants.iter().enumerate() {
        let clients = if let Demand::Clients(clients) = tenant.demand { clients } else { 1 };
        (0..clients).for_each(|_| due.push(Reverse((Time::ZERO, number))));
    }
    let mut bills: Vec<Bill> = tenants.iter().map(|_| Bill::default()).collect();
    let mut asked: BTreeMap<u64, usize> = BTreeMap::new();
    for query in 0_u64.. {
        let asks = |due: &BinaryHeap<Reverse<(Time, usize)>>| due.peek().map_or(Time::MAX, |next| next.0.0);
        while world.next_event() < asks(&due) && world.next_event() < Time::ZERO + LENGTH {
            world.step();
            for reply in std::mem::take(&mut world.replies) {
                let tenant = asked[&reply.query.payload];
                bills[tenant].latencies.push(reply.at.since(reply.arrived));
                if let Demand::Clients(_) = tenants[tenant].demand {
                    due.push(Reverse((reply.at, tenant)));
                }
            }
        }
        let Some(Reverse((at, number))) = due.pop().filter(|next| next.0.0 < Time::ZERO + LENGTH) else {
            break;
        };
        let own = tenants[number];
        if let Demand::Every(pause) = own.demand {
            due.push(Reverse((at + pause, number)));
        }
        world.now = at;
        asked.insert(query, number);
        let share = own.share.map(|_| ShareKey(number as u32));
        let deadline = at + Duration::from_secs(1000);
        world.submit(Submission { share, ..Submission::new(models[&own.model], query, deadline) });
    }
    for (payer_of, account) in world.dispatcher.accounts() {
        if let Some(number) = (0..tenants.len()).find(|at| payer(*at) == payer_of) {
            let counters = world.dispatcher.counters(models[&tenants[number].model]).unwrap_or_default();
            (bills[number].used, bills[number].copies) = (account.used, counters.replicated);
        }
    }
    bills
}

/// A tenant with a share of this weight, whose clients send queries of this service time without a pause.
fn greedy(weight: f64, model: u32, service: Duration) -> Tenant {
    let share = Some(Terms { weight, reserved: 0 });
    Tenant { share, model, service, demand: Demand::Clients(64) }
}

/// 64 clients of the heavy model, in its own share.
fn flood() -> Tenant {
    Tenant { share: None, ..greedy(1.0, 1, HEAVY) }
}

/// Twenty queries per second of the light model.
fn light() -> Tenant {
    Tenant { share: None, model: 2, service: LIGHT, demand: Demand::Every(50 * MS) }
}

/// A tenant with so many reserved servers that sends one query.
fn absent(weight: f64, reserved: u32) -> Tenant {
    let share = Some(Terms { weight, reserved });
    Tenant { share, demand: Demand::Every(2 * LENGTH), ..greedy(weight, 2, 20 * MS) }
}

fn parts(bills: &[Bill]) -> Vec<f64> {
    let all: f64 = bills.iter().map(|bill| bill.used).sum();
    bills.iter().map(|bill| bill.used / all).collect()
}

fn p99(bill: &Bill) -> Duration {
    let mut latencies = bill.latencies.clone();
    latencies.sort_unstable();
    latencies[latencies.len() * 99 / 100]
}

#[test]
fn tenants_share_time_by_weight_however_long_their_queries_are() {
    for services in [[20 * MS; 3], [HEAVY, 20 * MS, LIGHT]] {
        let weights = [1.0, 2.0, 4.0];
        let models = if services[0] == services[1] { [1, 1, 1] } else { [1, 2, 3] };
        let tenants: Vec<_> = (0..3).map(|at| greedy(weights[at], models[at], services[at])).collect();
        let bills = simulate(&tenants, Policy::EQUAL);
        for (part, weight) in parts(&bills).iter().zip(weights) {
            assert!((part * 7.0 / weight - 1.0).abs() < 0.05, "{services:?}: {:?}", parts(&bills));
        }
        let most = services[0].as_secs_f64() / services[2].as_secs_f64() * 2.5;
        let [first, last] = [0, 2].map(|at| bills[at].latencies.len() as f64);
        assert!(last > most * first, "{services:?}: {first} and {last} answers");
    }
}

#[test]
fn flood_costs_others_little_and_loses_only_their_use() {
    let alone = simulate(&[light()], Policy::EQUAL).remove(0);
    let calm = simulate(&[flood()], Policy::EQUAL).remove(0);
    let bills = simulate(&[flood(), light()], Policy::EQUAL);
    let (heavy, light) = (&bills[0], &bills[1]);
    assert!(p99(light) <= p99(&alone) + 2 * HEAVY, "{:?}, alone {:?}", p99(light), p99(&alone));
    assert!(light.latencies.len() + 5 >= alone.latencies.len(), "the flood is still answered");
    // Jobs that have started and not ended are not yet charged to a tenant, before and after.
    let slack = 4.0 * HEAVY.as_secs_f64();
    assert!(calm.used - heavy.used <= light.used + slack, "{} of {}", calm.used - heavy.used, light.used);
}

#[test]
fn reserved_server_is_available_within_a_service_time() {
    // Its weight alone would give it a hundredth; it requests five times that.
    let with = |reserved| Tenant {
        share: Some(Terms { weight: 1.0, reserved }),
        demand: Demand::Every(25 * MS),
        ..light()
    };
    let bills = simulate(&[with(1), greedy(100.0, 1, HEAVY)], Policy::EQUAL);
    let unkept = simulate(&[with(0), greedy(100.0, 1, HEAVY)], Policy::EQUAL).remove(0);
    assert!(unkept.latencies.len() * 2 < bills[0].latencies.len(), "it would starve");
    let worst = bills[0].latencies.iter().max().expect("it has answers");
    assert!(*worst <= (HEAVY + LIGHT).mul_f64(1.1) + 10 * MS, "{worst:?}");
    assert!(bills[1].used > 25.0, "others use the rest: {} s", bills[1].used);
}

#[test]
fn idle_capacity_goes_to_any_tenant() {
    // It has a hundredth of the weight, and another tenant has two servers that it does not use.
    let bills = simulate(&[greedy(1.0, 1, 20 * MS), absent(99.0, 2)], Policy::EQUAL);
    assert!(bills[0].used > 39.0, "{} of 40 s", bills[0].used);
}

#[test]
fn tenant_with_a_tiny_share_does_not_starve() {
    let mut tenants: Vec<_> = (0..8).map(|_| greedy(100.0, 1, 20 * MS)).collect();
    tenants.push(Tenant { demand: Demand::Clients(3), ..greedy(1.0, 2, 20 * MS) });
    let bills = simulate(&tenants, Policy::EQUAL);
    let (small, part) = (&bills[8], parts(&bills)[8]);
    assert!(small.latencies.len() >= 2 && part >= 0.5 / 801.0, "{small:?}");
}

#[test]
fn redundancy_is_charged_and_takes_no_reserved_server() {
    // Each query is duplicated if there is room, but all servers are reserved for another tenant.
    let copied = Tenant { demand: Demand::Clients(1), ..greedy(1.0, 1, 20 * MS) };
    let free = simulate(&[copied, absent(1.0, 0)], Policy::REPLICATE);
    assert!(free[0].copies > 150 && free[1].copies <= 1, "{free:?}");
    assert!(
        free[0].used > 1.8 * 0.02 * free[0].latencies.len() as f64,
        "copies are charged: {}",
        free[0].used
    );
    let reserved = simulate(&[copied, absent(1.0, 4)], Policy::REPLICATE);
    assert!(reserved[0].copies * 20 < free[0].copies, "{} of {}", reserved[0].copies, free[0].copies);
    assert!(reserved[0].latencies.len() * 10 > free[0].latencies.len() * 9, "queries continue");
}
