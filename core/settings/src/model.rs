//! What the settings of a model mean to the dispatcher: the one mapping, for frontend, simulator and tuner.
//!
//! The dispatcher knows models by keys, and a model that others name has up to three roles there: its own key, that of the model
//! which answers for it, and one for each parity model. [`PoolSettings::model_settings`] gives the settings of each,
//! [`PoolSettings::coding_settings`] how its groups are made, and [`PoolSettings::dedicated_instances`] how many instances run no
//! query. The other settings take effect in the frontend; a test in this file has a row for each setting that says where.

use std::num::NonZeroU16;
use std::time::Duration;

use parm_dispatcher::{self as dispatcher, HealthSettings, ModelKey, ModelSettings, Policy, StandInPolicy};

use super::{BudgetSettings, EjectionSettings, InForce, InOutage, Placement, PolicyKind, PoolSettings};

/// The age at which an incomplete coding group is coded: more members would come too late to help the first.
const GROUP_AGE: Duration = Duration::from_millis(20);

/// The largest batch under `auto`.
const LARGEST: u16 = 64;

/// The largest batch of a stand-in: workers do not measure the cost of more rows.
const STAND_IN_ROWS: NonZeroU16 = NonZeroU16::new(8).unwrap();

/// What a key of the dispatcher does for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelRole {
    /// It is the model itself.
    Deployed {
        /// The key of the model that answers for it: its stand-in, or its backup. `None` if no such model is served, and while
        /// its answers are withheld because they disagree with the model's.
        stand_in: Option<ModelKey>,
    },
    /// It answers for the model: its stand-in, or its backup.
    StandIn {
        /// Most rows that this model takes.
        max_rows: NonZeroU16,
    },
    /// It is one of the parity models of the model's codes.
    Parity {
        /// Most rows that this model takes.
        max_rows: NonZeroU16,
    },
}

impl PoolSettings {
    /// The dispatcher's settings of a key that has this role for the model.
    pub fn model_settings(&self, in_force: &InForce, role: ModelRole) -> ModelSettings {
        let policy = self.policy_in_force(in_force);
        let rows = batch_rows(in_force);
        let (policy, stand_in, max_rows) = match role {
            ModelRole::Deployed { stand_in } => (policy, policy.stand_in.and(stand_in), rows),
            // A backup runs the batches of the model.
            ModelRole::StandIn { max_rows } if in_force.policy == PolicyKind::ApproximateBackup => {
                (helper(policy), None, rows.min(max_rows))
            }
            ModelRole::StandIn { max_rows } => (helper(policy), None, STAND_IN_ROWS.min(max_rows)),
            ModelRole::Parity { max_rows } => (helper(policy), None, rows.min(max_rows)),
        };
        ModelSettings {
            policy,
            stand_in,
            max_attempts: self.max_attempts.get(),
            queue_limit: self.queue_limit.get(),
            max_rows: max_rows.get().into(),
            instance_wait: self.no_instance_grace,
            hedges: budget(&self.hedge.budget),
            retries: budget(&self.retry),
            least_hedge_delay: self.hedge.min_delay,
            health: health(&self.ejection),
        }
    }

    /// How coding groups of the model are made; `None` if its policy or its files allow none.
    pub fn coding_settings(&self, in_force: &InForce) -> Option<dispatcher::CodingSettings> {
        let follows_load = match in_force.policy {
            PolicyKind::Parm => false,
            PolicyKind::ParmPlus => self.coding.parm_plus.k_follows_load,
            _ => return None,
        };
        let mut codes = in_force.coding.codes.clone();
        codes.retain(|code| follows_load || code.k == usize::from(self.coding.k.get()));
        let settings = dispatcher::CodingSettings { codes, follows_load, max_age: GROUP_AGE };
        Some(settings).filter(|settings| !settings.codes.is_empty())
    }

    /// How many of the instances run no query but its parities or its backup. One is always left for queries.
    pub fn dedicated_instances(&self, in_force: &InForce, instances: usize) -> usize {
        let paper = dispatcher::parity_instances(instances, self.coding.k.get().into());
        match (in_force.policy, self.coding.parity_instances) {
            (PolicyKind::Parm, Some(kept)) => (kept.get() as usize).min(instances.saturating_sub(1)),
            (PolicyKind::Parm | PolicyKind::ApproximateBackup, _) => paper,
            _ => 0,
        }
    }

    fn policy_in_force(&self, in_force: &InForce) -> Policy {
        let approximate = self.coding.grace.factor.get();
        let policy = match in_force.policy {
            PolicyKind::None => Policy::NONE,
            PolicyKind::Once => Policy::ONCE,
            PolicyKind::Equal => Policy::EQUAL,
            PolicyKind::Replicate => Policy { runs: self.copies.get(), ..Policy::REPLICATE },
            PolicyKind::Hedge => Policy::HEDGE,
            PolicyKind::Parm => Policy::PARM,
            PolicyKind::ParmPlus => {
                Policy { hedge: self.coding.parm_plus.hedge, late_factor: approximate, ..Policy::PARM_PLUS }
            }
            PolicyKind::ApproximateBackup => {
                Policy { late_factor: approximate, ..Policy::APPROXIMATE_BACKUP }
            }
            PolicyKind::StandIn => Policy {
                hedge: self.stand_in.hedge,
                late_factor: self.stand_in.late_factor.get(),
                stand_in: Policy::STAND_IN.stand_in.map(|policy| StandInPolicy {
                    bound: self.stand_in.bound.get(),
                    in_outage: self.stand_in.in_outage == InOutage::Answer,
                    ..policy
                }),
                ..Policy::STAND_IN
            },
        };
        match self.placement {
            Placement::Speed => policy,
            Placement::Turns => Policy { placement: dispatcher::Placement::InTurn, ..policy },
        }
    }
}

/// The policy of a model that runs for another one: its own runs have no redundancy.
fn helper(policy: Policy) -> Policy {
    Policy { placement: policy.placement, ..Policy::NONE }
}

fn batch_rows(in_force: &InForce) -> NonZeroU16 {
    let largest = const { NonZeroU16::new(LARGEST).unwrap() };
    in_force.batch.max_size.fixed().unwrap_or(largest).min(in_force.max_rows)
}

fn budget(settings: &BudgetSettings) -> dispatcher::BudgetSettings {
    dispatcher::BudgetSettings { ratio: settings.ratio.get(), burst: settings.burst }
}

fn health(settings: &EjectionSettings) -> HealthSettings {
    let usual = HealthSettings::default();
    match settings.enabled {
        true => usual,
        false => HealthSettings { least_in_service: 1.0, ..usual },
    }
}

#[cfg(test)]
mod tests {
    use parm_dispatcher::Dispatcher;
    use parm_durations::leaves;
    use serde_json::{Value, json};

    use super::*;
    use PolicyKind::{ApproximateBackup, Equal, Hedge, Once, Parm, ParmPlus, StandIn};

    fn key() -> ModelKey {
        Dispatcher::<(), ()>::default().add_model(ModelSettings::default())
    }

    fn rows(most: u16) -> NonZeroU16 {
        NonZeroU16::new(most).unwrap()
    }

    fn under(policy: PolicyKind) -> PoolSettings {
        PoolSettings { policy, ..PoolSettings::default() }
    }

    fn deployed(settings: &PoolSettings) -> ModelSettings {
        settings.model_settings(&InForce::as_wished(settings), ModelRole::Deployed { stand_in: Some(key()) })
    }

    /// All that the dispatcher is told.
    fn told(settings: &PoolSettings) -> impl PartialEq {
        let in_force = InForce::as_wished(settings);
        let most = NonZeroU16::MAX;
        let helpers = [ModelRole::StandIn { max_rows: most }, ModelRole::Parity { max_rows: most }];
        (
            deployed(settings),
            helpers.map(|role| settings.model_settings(&in_force, role)),
            settings.coding_settings(&in_force),
            settings.dedicated_instances(&in_force, 18),
        )
    }

    /// Each setting, with a value that is not its default. `Ok` has a policy under which the dispatcher is told of it, `Err` who
    /// uses it instead.
    fn uses() -> Vec<(&'static str, Value, Result<PolicyKind, &'static str>)> {
        vec![
            ("policy", json!("equal"), Ok(Hedge)),
            ("placement", json!("turns"), Ok(Hedge)),
            ("queue_limit", json!(7), Ok(Hedge)),
            ("batch.max_size", json!(7), Ok(Hedge)),
            ("max_attempts", json!(7), Ok(Hedge)),
            ("hedge.budget.ratio", json!(0.7), Ok(Hedge)),
            ("hedge.min_delay_us", json!(7), Ok(Hedge)),
            ("coding.code", json!("slots"), Ok(Parm)),
            ("coding.k", json!(3), Ok(Parm)),
            ("coding.k_choices.*", json!(4), Ok(ParmPlus)),
            ("coding.r", json!(2), Ok(Parm)),
            ("coding.grace.factor", json!(2.0), Ok(ParmPlus)),
            (
                "coding.min_confidence",
                json!(0.7),
                Err("frontend: less confident reconstructions are not offered"),
            ),
            ("coding.parm_plus.hedge", json!(false), Ok(ParmPlus)),
            ("coding.parm_plus.k_follows_load", json!(false), Ok(ParmPlus)),
            ("coding.parity_instances", json!(3), Ok(Parm)),
            ("stand_in.model", json!("small"), Err("frontend: which model has the role")),
            ("stand_in.late_factor", json!(2.0), Ok(StandIn)),
            ("stand_in.bound", json!(0.7), Ok(StandIn)),
            ("stand_in.min_confidence", json!(0.7), Err("frontend: less confident answers are dropped")),
            ("stand_in.in_outage", json!("fail"), Ok(StandIn)),
            ("stand_in.agreement.floor", json!(0.7), Err("frontend: agreement")),
            ("stand_in.agreement.eject", json!(false), Err("frontend: agreement")),
            ("ejection.enabled", json!(false), Ok(Hedge)),
            ("no_instance_grace_ms", json!(7), Ok(Hedge)),
            ("backup_model", json!("small"), Err("frontend: which model has the role")),
            ("default_answer", json!(true), Err("frontend: instead of a rejection")),
        ]
    }

    fn with(settings: PoolSettings, path: &str, value: &Value) -> PoolSettings {
        let mut whole = serde_json::to_value(settings).unwrap();
        let (path, value) = match path.strip_suffix(".*") {
            Some(list) => (list, json!([value])),
            None => (path, value.clone()),
        };
        *path.split('.').fold(&mut whole, |part, name| &mut part[name]) = value;
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn each_setting_is_told_to_the_dispatcher_or_has_another_use() {
        let mut known: Vec<String> = Vec::new();
        for (path, value, at) in uses() {
            let changes = |policy| {
                let before = under(policy);
                let after = with(before.clone(), path, &value);
                assert_ne!(before, after, "{path}: give a value that is not the default");
                told(&before) != told(&after)
            };
            match at {
                Ok(policy) => assert!(changes(policy), "{path} is not told under {policy:?}"),
                Err(other) => {
                    let told = PolicyKind::ALL.into_iter().find(|policy| changes(*policy));
                    assert_eq!(told, None, "{path} is told, but its use is {other:?}");
                }
            }
            known.push(path.into());
        }
        let schema = schemars::schema_for!(PoolSettings).to_value();
        let mut all: Vec<String> = leaves(&schema).into_iter().map(|leaf| leaf.path.join(".")).collect();
        all.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, all, "each setting has a row in `uses`");
    }

    #[test]
    fn default_settings_are_the_policies_of_the_dispatcher() {
        let expected = [
            Policy::NONE,
            Policy::ONCE,
            Policy::EQUAL,
            Policy::REPLICATE,
            Policy::HEDGE,
            Policy::PARM,
            Policy::PARM_PLUS,
            Policy::APPROXIMATE_BACKUP,
            Policy::STAND_IN,
        ];
        assert_eq!(PolicyKind::ALL.map(|kind| deployed(&under(kind)).policy), expected);
        let stand_in = |kind| deployed(&under(kind)).stand_in;
        let having = PolicyKind::ALL.into_iter().filter(|kind| stand_in(*kind).is_some());
        assert_eq!(having.collect::<Vec<_>>(), [ApproximateBackup, StandIn]);
        let usual = ModelSettings { queue_limit: 1024, max_rows: 64, ..ModelSettings::default() };
        assert_eq!(deployed(&under(Hedge)), usual);
    }

    #[test]
    fn rows_are_limited_by_the_setting_and_by_each_model() {
        let most = |policy, size: Value, role| {
            let settings = with(under(policy), "batch.max_size", &size);
            let in_force = InForce { max_rows: rows(16), ..InForce::as_wished(&settings) };
            settings.model_settings(&in_force, role).max_rows
        };
        let deployed = ModelRole::Deployed { stand_in: None };
        let (stand_in, parity) =
            (|most| ModelRole::StandIn { max_rows: rows(most) }, ModelRole::Parity { max_rows: rows(3) });
        let (auto, server) = (json!("auto"), json!("server"));
        assert_eq!(most(Hedge, auto.clone(), deployed), 16, "the model takes no more");
        assert_eq!(most(Hedge, json!(4), deployed), 4);
        assert_eq!(most(Hedge, server, deployed), 1, "the server makes the batches");
        assert_eq!(most(StandIn, auto.clone(), stand_in(100)), 8, "the cost of more is not measured");
        assert_eq!(most(StandIn, auto.clone(), stand_in(2)), 2);
        assert_eq!(most(ApproximateBackup, auto.clone(), stand_in(100)), 16, "it runs the model's batches");
        assert_eq!(most(Parm, auto, parity), 3);
    }

    #[test]
    fn models_that_run_for_another_have_no_redundancy() {
        for kind in PolicyKind::ALL {
            let settings = under(kind);
            let in_force = InForce::as_wished(&settings);
            for role in [ModelRole::StandIn { max_rows: rows(1) }, ModelRole::Parity { max_rows: rows(1) }] {
                let own = settings.model_settings(&in_force, role);
                let placement = deployed(&settings).policy.placement;
                assert_eq!(
                    (own.policy, own.stand_in),
                    (Policy { placement, ..Policy::NONE }, None),
                    "{kind:?}"
                );
            }
        }
    }

    #[test]
    fn groups_have_one_size_unless_they_follow_the_load() {
        let sizes = |policy, follows: bool| {
            let mut settings = with(under(policy), "coding.k_choices", &json!([2, 3, 4]));
            settings = with(settings, "coding.k", &json!(3));
            settings.coding.parm_plus.k_follows_load = follows;
            let coding = settings.coding_settings(&InForce::as_wished(&settings))?;
            Some((coding.codes.iter().map(|code| code.k).collect::<Vec<_>>(), coding.follows_load))
        };
        assert_eq!(sizes(Parm, true), Some((vec![3], false)));
        assert_eq!(sizes(ParmPlus, true), Some((vec![2, 3, 4], true)));
        assert_eq!(sizes(ParmPlus, false), Some((vec![3], false)));
        assert_eq!(sizes(Hedge, true), None);
        let settings = under(Parm);
        let uncoded = InForce { coding: crate::Coding::default(), ..InForce::as_wished(&settings) };
        assert_eq!(settings.coding_settings(&uncoded), None, "there are no parity models");
    }

    #[test]
    fn settings_in_force_count_and_not_those_that_were_wished() {
        let settings = under(ParmPlus);
        let in_force = InForce { policy: Once, ..InForce::as_wished(&settings) };
        let own = settings.model_settings(&in_force, ModelRole::Deployed { stand_in: None });
        assert_eq!((own.policy, settings.coding_settings(&in_force)), (Policy::ONCE, None));
    }

    #[test]
    fn instances_are_dedicated_as_in_the_paper_or_as_set() {
        let kept = |settings: &PoolSettings| {
            let in_force = InForce::as_wished(settings);
            [18, 4, 2, 1, 0].map(|instances| settings.dedicated_instances(&in_force, instances))
        };
        for kind in PolicyKind::ALL {
            let expected = if matches!(kind, Parm | ApproximateBackup) { [6, 1, 1, 0, 0] } else { [0; 5] };
            assert_eq!(kept(&under(kind)), expected, "{kind:?}");
        }
        let set = |kind| kept(&with(under(kind), "coding.parity_instances", &json!(3)));
        assert_eq!(set(Parm), [3, 3, 1, 0, 0]);
        assert_eq!((set(ApproximateBackup), set(Equal)), ([6, 1, 1, 0, 0], [0; 5]), "it is for parities");
    }

    #[test]
    fn ejection_can_be_switched_off() {
        let off = deployed(&with(under(Hedge), "ejection.enabled", &json!(false))).health;
        assert_eq!(off, HealthSettings { least_in_service: 1.0, ..HealthSettings::default() });
    }
}
