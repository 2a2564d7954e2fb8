//! Several tenants on the same instances: each gets its share under a flood of another. One frontend has the instances to
//! itself, or three share them.

use std::num::NonZeroU32;
use std::time::Duration;

use parm_dispatch::{PoolId, Terms};
use parm_settings::{BatchSize, PolicyKind, PoolSettings};
use parm_simulator::{Bill, Demand, Tenancy, Tenant};

const MS: Duration = Duration::from_millis(1);
const HEAVY: Duration = Duration::from_millis(100);
const LIGHT: Duration = Duration::from_millis(5);

/// One frontend with its own instances, and three with tokens.
const FRONTENDS: [u32; 2] = [1, 3];

fn tenancy(tenants: Vec<Tenant>, frontends: u32) -> Tenancy {
    let mut settings = PoolSettings { policy: PolicyKind::Equal, ..PoolSettings::default() };
    settings.batch.max_size = BatchSize::ONE;
    settings.ejection.enabled = false;
    settings.queue_limit = NonZeroU32::new(1 << 16).unwrap();
    let (delay, length) = (Duration::from_micros(75), Duration::from_secs(10));
    Tenancy { tenants, instances: 4, frontends, delay, length, settings, seed: 1 }
}

fn simulate(run: &Tenancy) -> Vec<Bill> {
    eprintln!("seed {}, {} frontends", run.seed, run.frontends);
    run.simulate()
}

/// A tenant with a share of this weight, whose clients send queries of this service time without a pause.
fn greedy(weight: f64, model: u32, service: Duration) -> Tenant {
    let share = Some(Terms { weight, reserved: 0 });
    Tenant { share, model: PoolId(model), service, demand: Demand::Clients(64), at: None }
}

/// 64 clients of the heavy model, in its own share.
fn flood() -> Tenant {
    Tenant { share: None, ..greedy(1.0, 1, HEAVY) }
}

/// Twenty queries per second of the light model.
fn light() -> Tenant {
    Tenant { share: None, model: PoolId(2), service: LIGHT, demand: Demand::Every(50 * MS), at: None }
}

fn parts(bills: &[Bill]) -> Vec<f64> {
    let all: f64 = bills.iter().map(|bill| bill.used.as_secs_f64()).sum();
    bills.iter().map(|bill| bill.used.as_secs_f64() / all).collect()
}

fn p99(bill: &Bill) -> Duration {
    let mut latencies = bill.latencies.clone();
    latencies.sort_unstable();
    latencies[latencies.len() * 99 / 100]
}

/// Asserts that each part of the time is in proportion to its weight, within 5 %.
fn assert_shared(bills: &[Bill], weights: &[f64], said: &str) {
    let all: f64 = weights.iter().sum();
    for (part, weight) in parts(bills).iter().zip(weights) {
        assert!((part * all / weight - 1.0).abs() < 0.05, "{said}: {:?} of {weights:?}", parts(bills));
    }
}

#[test]
fn tenants_of_one_model_share_its_time_by_weight() {
    for frontends in FRONTENDS {
        let tenants = [1.0, 2.0, 4.0].map(|weight| greedy(weight, 1, 20 * MS));
        let bills = simulate(&tenancy(tenants.into(), frontends));
        assert_shared(&bills, &[1.0, 2.0, 4.0], &format!("{frontends} frontends"));
    }
}

#[test]
fn tenants_share_time_rather_than_queries() {
    for frontends in FRONTENDS {
        let tenants = [greedy(1.0, 1, HEAVY), greedy(2.0, 2, 20 * MS), greedy(4.0, 3, LIGHT)];
        let bills = simulate(&tenancy(tenants.into(), frontends));
        assert_shared(&bills, &[1.0, 2.0, 4.0], &format!("{frontends} frontends"));
        assert!(
            bills[2].latencies.len() > 50 * bills[0].latencies.len(),
            "the shortest are the most frequent"
        );
    }
}

#[test]
fn weight_of_a_tenant_does_not_depend_on_its_frontends() {
    for at in [
        [Some(0), None, None],
        [None, None, Some(2)],
        [Some(0), Some(1), Some(2)],
        [Some(0), Some(0), Some(1)],
    ] {
        let weights = [1.0, 2.0, 4.0];
        let tenants = weights.iter().zip(at).map(|(weight, at)| Tenant { at, ..greedy(*weight, 1, 20 * MS) });
        assert_shared(&simulate(&tenancy(tenants.collect(), 3)), &weights, &format!("{at:?}"));
    }
}

#[test]
fn flood_costs_others_little_and_loses_only_their_use() {
    for frontends in FRONTENDS {
        let alone = simulate(&tenancy(vec![light()], frontends)).remove(0);
        let calm = simulate(&tenancy(vec![flood()], frontends)).remove(0);
        let bills = simulate(&tenancy(vec![flood(), light()], frontends));
        let (heavy, light) = (&bills[0], &bills[1]);
        let bound = p99(&alone) + 2 * HEAVY;
        assert!(p99(light) <= bound, "{frontends}: {:?}, alone {:?}", p99(light), p99(&alone));
        assert!(
            light.latencies.len() + 5 >= alone.latencies.len(),
            "{frontends}: the flood is still answered"
        );
        // Jobs that have started and not ended are not yet charged to a tenant, before and after.
        let slack = 4 * HEAVY;
        let lost = calm.used.saturating_sub(heavy.used);
        assert!(lost <= light.used + slack, "{frontends}: lost {lost:?} to {:?}", light.used);
    }
}

#[test]
fn reserved_instance_is_available_within_a_service_time() {
    for frontends in FRONTENDS {
        // Its weight alone would give it a hundredth; it requests five times that.
        let share = Some(Terms { weight: 1.0, reserved: 1 });
        let kept = Tenant { share, demand: Demand::Every(25 * MS), ..light() };
        let flood = greedy(100.0, 1, HEAVY);
        let without = Tenant { share: Some(Terms { weight: 1.0, reserved: 0 }), ..kept };
        let bills = simulate(&tenancy(vec![kept, flood], frontends));
        let unkept = simulate(&tenancy(vec![without, flood], frontends));
        let (kept, unkept) = (&bills[0], &unkept[0]);
        assert!(unkept.latencies.len() * 2 < kept.latencies.len(), "{frontends}: it would starve");
        let worst = kept.latencies.iter().max().unwrap();
        // The longest service, its own, and the network both ways. Other frontends do not know yet of a token that one
        // uses for the share, so with tokens it can be a quarter of a service more.
        let unknown = if frontends == 1 { Duration::ZERO } else { HEAVY / 4 };
        let bound = HEAVY.mul_f64(1.1) + LIGHT.mul_f64(1.1) + 10 * MS + unknown;
        assert!(*worst <= bound, "{frontends}: {worst:?}");
        assert!(bills[1].used > Duration::from_secs(25), "others use the rest: {:?}", bills[1].used);
    }
}

#[test]
fn idle_capacity_goes_to_any_tenant() {
    for frontends in FRONTENDS {
        // It has a hundredth of the weight, and another tenant has an instance that it does not use.
        let idle = Tenant { demand: Demand::Every(Duration::from_secs(100)), ..greedy(99.0, 1, 20 * MS) };
        let idle = Tenant { share: Some(Terms { weight: 99.0, reserved: 2 }), ..idle };
        let bills = simulate(&tenancy(vec![greedy(1.0, 1, 20 * MS), idle], frontends));
        assert!(bills[0].used > Duration::from_secs(39), "{frontends}: {:?} of 40 s", bills[0].used);
    }
}

#[test]
fn tenant_with_a_tiny_share_does_not_starve() {
    for frontends in FRONTENDS {
        let mut tenants: Vec<_> = (0..8).map(|_| greedy(100.0, 1, 20 * MS)).collect();
        // One client at each frontend.
        tenants.push(Tenant { demand: Demand::Clients(3), ..greedy(1.0, 2, 20 * MS) });
        let bills = simulate(&tenancy(tenants, frontends));
        let small = bills.last().unwrap();
        let part = parts(&bills).pop().unwrap();
        assert!(small.latencies.len() >= 2 && part >= 0.5 / 801.0, "{frontends}: {small:?}");
    }
}

#[test]
fn redundancy_is_charged_and_takes_no_reserved_instance() {
    for frontends in FRONTENDS {
        // Every query is duplicated if there is room, but all instances are reserved for another tenant.
        let copied = Tenant { demand: Demand::Clients(1), ..greedy(1.0, 1, 20 * MS) };
        let kept = Terms { weight: 1.0, reserved: 4 };
        let absent = Tenant { demand: Demand::Every(Duration::from_secs(100)), ..greedy(1.0, 2, 20 * MS) };
        let mut run = tenancy(vec![copied, absent], frontends);
        run.settings.policy = PolicyKind::Replicate;
        let free = simulate(&run);
        assert!(free[0].redundancy > Duration::from_secs(3), "{frontends}: {:?}", free[0].redundancy);
        assert!(free[1].redundancy < 40 * MS, "{frontends}: others are not charged");
        run.tenants[1].share = Some(kept);
        let reserved = simulate(&run);
        assert!(
            reserved[0].redundancy * 20 < free[0].redundancy,
            "{frontends}: {:?}",
            reserved[0].redundancy
        );
        assert!(
            reserved[0].latencies.len() * 10 > free[0].latencies.len() * 9,
            "{frontends}: queries continue"
        );
    }
}
