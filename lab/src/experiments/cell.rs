//! The cells of an experiment: a policy with its instances, under a scenario at a load.

use std::num::{NonZeroU8, NonZeroU32};

use parm_settings::{BatchSize, Cost, PolicyKind, PoolSettings};
use parm_workload::{Fault, Scenario};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::experiments::Config;
use crate::simulator::{Lengths, Run};
use crate::world::rivals::{RIVALS, Rival};

/// A policy or a rival, and its instances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contender {
    /// The dispatch settings, with the same fields as in the frontend's configuration.
    pub dispatch: PoolSettings,
    /// What distributes the queries instead of parm, in a simulation. Default: nothing.
    pub rival: Option<Rival>,
    /// Number of instances, if it differs from the experiment's.
    pub instances: Option<NonZeroU32>,
    /// How batches treat queries of unequal lengths, in a simulation: `mixed` without regard to them, or `equal` lengths
    /// only. Default `mixed`.
    pub lengths: Lengths,
}

/// The predefined policies and their descriptions.
pub const POLICIES: &[(&str, &str)] = &[
    ("none", "no redundancy, on the deployed instances alone"),
    ("equal", "no redundancy, on all instances: Equal-Resources, the baseline"),
    ("replicate", "every query on two instances, as soon as two are free"),
    ("hedge", "late queries once more, within a budget"),
    ("parm", "the paper's: a parity per two queries, on a third of the instances"),
    ("parm+", "parities on idle instances, hedges within a budget, groups of 2 to 4"),
    ("approximate-backup", "every query on a cheaper model too, on instances of its own"),
    ("stand-in", "a cheaper model for late queries, hedges within a budget"),
];

impl Contender {
    /// Returns the predefined policy or rival of this name, for an experiment whose loads refer to so many instances.
    fn named(name: &str, deployed: NonZeroU32) -> Option<Self> {
        if let Some(rival) = Rival::named(name) {
            return Some(Self { rival: Some(rival), ..Self::default() });
        }
        let known = POLICIES.iter().find(|(own, _)| *own == name)?;
        let policy = serde_json::from_value(known.0.into()).ok()?;
        let mut contender = Contender::default();
        contender.dispatch.policy = policy;
        if policy == PolicyKind::ParmPlus {
            contender.dispatch.coding.k_choices = (3..=4).filter_map(NonZeroU8::new).collect();
        }
        contender.instances = (policy == PolicyKind::None).then_some(deployed);
        Some(contender)
    }

    /// Returns the policy for every `k` and `r`, with the suffix of each name: a group of a given size does not follow
    /// the load.
    fn variants(self, ks: &[NonZeroU8], rs: &[NonZeroU8]) -> Vec<(String, Self)> {
        if !self.dispatch.policy.is_coded() {
            return vec![(String::new(), self)];
        }
        let each = |values: &[NonZeroU8]| match values {
            [] => vec![None],
            values => values.iter().copied().map(Some).collect(),
        };
        let mut variants = Vec::new();
        for k in each(ks) {
            for r in each(rs) {
                let (mut name, mut variant) = (String::new(), self.clone());
                let coding = &mut variant.dispatch.coding;
                if let Some(k) = k {
                    (coding.k, coding.k_choices) = (k, Vec::new());
                    coding.parm_plus.k_follows_load = false;
                    name += &format!(" k={k}");
                }
                if let Some(r) = r {
                    coding.r = r;
                    name += &format!(" r={r}");
                }
                variants.push((name, variant));
            }
        }
        variants
    }
}

/// Most runs of a cell. Each needs memory for its results.
const MOST_REPEATS: u32 = 10_000;

/// Most frontends. Each knows all instances.
const MOST_FRONTENDS: u32 = 1000;

/// Most instances. Each needs memory in every frontend.
const MOST_INSTANCES: u32 = 100_000;

/// One policy under one scenario at one load: the name of a cell, of its runs, and of its row in the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// The scenario.
    pub scenario: String,
    /// Share of the capacity of the deployed instances; `None` if their service time is unknown, and for a closed load.
    pub load: Option<f64>,
    /// Queries per second; without meaning if the load is closed.
    pub rate: f64,
    /// Most queries in a batch.
    pub batch: BatchSize,
    /// Frontends, or clients of a rival.
    pub frontends: u32,
    /// Queries that are always open, if the load is closed.
    pub closed: Option<NonZeroU32>,
    /// The policy, with its `k` and `r` if the experiment varies them.
    pub policy: String,
    /// Queries per group. `None` for policies without groups, or if their size follows the load.
    pub k: Option<u8>,
    /// Parities per group. `None` for policies without groups.
    pub r: Option<u8>,
}

/// A case and its runs.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The case.
    pub case: Case,
    /// One for each repeat.
    pub runs: Vec<Run>,
}

impl Case {
    /// Returns the load, the open queries if it is closed, or the queries per second if it is unknown.
    pub fn intensity(&self) -> String {
        if let Some(closed) = self.closed {
            return format!("{closed} open");
        }
        let rate = || format!("{}/s", (1000.0 * self.rate).round() / 1000.0);
        self.load.map_or_else(rate, |load| load.to_string())
    }

    /// Returns the policy, with the size of its batches if it is fixed, and with its frontends if there are several.
    pub fn name(&self) -> String {
        let Self { policy, batch, frontends, .. } = self;
        let batch = if *batch == BatchSize::Auto { String::new() } else { format!(" batch={batch}") };
        let frontends = if *frontends == 1 { String::new() } else { format!(" frontends={frontends}") };
        format!("{policy}{batch}{frontends}")
    }

    /// Whether two cases differ only in their policies.
    pub fn faces_the_same(&self, other: &Self) -> bool {
        let same = |case: &Self| (case.rate, case.batch, case.frontends);
        self.scenario == other.scenario && same(self) == same(other)
    }
}

impl Cell {
    /// Rejects what the simulation of several clients does not know.
    fn check(&self) -> Result<(), Error> {
        let Run { settings, faults, lengths, .. } = &self.runs[0];
        let has_other_models = settings.policy.is_coded() || settings.policy == PolicyKind::ApproximateBackup;
        let is_unknown = |fault: &Fault| matches!(fault, Fault::Crash { .. } | Fault::Wrong { .. });
        let without = [
            (has_other_models, "coding groups and backups"),
            (settings.default_answer, "default answers"),
            (*lengths != Lengths::Mixed, "lengths of queries"),
            (faults.0.iter().any(is_unknown), "crashes and wrong answers"),
        ];
        match without.into_iter().find(|(is_there, _)| self.runs[0].has_clients() && *is_there) {
            None => Ok(()),
            Some((_, without)) => Err(Error::Unsimulated { policy: self.case.policy.clone(), without }),
        }
    }
}

fn bounded(name: &'static str, value: u32, most: u32) -> Result<(), Error> {
    if value > most { Err(Error::TooMany { name, value, most }) } else { Ok(()) }
}

impl Config {
    /// Returns every cell; those that are compared with each other are neighbours.
    pub(crate) fn cells(&self) -> Result<Vec<Cell>, Error> {
        let loads = self.intensities();
        for (what, none) in [
            ("policy", self.policies.is_empty()),
            ("scenario", self.scenarios.is_empty()),
            ("load", loads.is_empty()),
        ] {
            if none {
                return Err(Error::Nothing { what });
            }
        }
        bounded("repeats", self.repeats.get(), MOST_REPEATS)?;
        bounded("instances", self.instances.get(), MOST_INSTANCES)?;
        bounded("deployed", self.deployed.get(), MOST_INSTANCES)?;
        bounded("closed", self.simulated.closed.map_or(0, NonZeroU32::get), MOST_INSTANCES)?;
        let frontends = if self.frontends.is_empty() { &[NonZeroU32::MIN][..] } else { &self.frontends };
        frontends.iter().try_for_each(|count| bounded("frontends", count.get(), MOST_FRONTENDS))?;
        self.service.check()?;
        for (name, share) in [("backup_share", self.backup_share), ("parity_share", self.parity_share)] {
            if !(0.0..=100.0).contains(&share) {
                return Err(Error::BadShare { name, share, most: 100.0 });
            }
        }
        let mut entrants = Vec::new();
        for policy in &self.policies {
            let contender = self.contender(policy)?;
            bounded("instances", contender.instances.map_or(0, NonZeroU32::get), MOST_INSTANCES)?;
            let variants = contender.variants(&self.k, &self.r).into_iter();
            entrants.extend(variants.map(|(variant, contender)| (format!("{policy}{variant}"), contender)));
        }
        let batches: Vec<Option<BatchSize>> =
            if self.batch.is_empty() { vec![None] } else { self.batch.iter().copied().map(Some).collect() };
        let mut cells = Vec::new();
        for scenario in &self.scenarios {
            for (load, rate) in &loads {
                for batch in &batches {
                    for count in frontends {
                        for (name, contender) in &entrants {
                            let how = (*batch, count.get());
                            cells.push(self.cell(scenario, (*load, *rate), how, name, contender)?);
                        }
                    }
                }
            }
        }
        Ok(cells)
    }

    fn stand_in(&self) -> Result<Cost, Error> {
        let cost = self.stand_in_cost.cost();
        for share in cost.rows {
            if !(share > 0.0 && share <= 100.0) {
                return Err(Error::BadShare { name: "stand_in_cost", share, most: 100.0 });
            }
        }
        Ok(cost)
    }

    fn cell(
        &self,
        scenario: &str,
        (load, rate): (f64, f64),
        (batch, frontends): (Option<BatchSize>, u32),
        name: &str,
        contender: &Contender,
    ) -> Result<Cell, Error> {
        if !(load.is_finite() && rate > 0.0) {
            return Err(Error::BadLoad { load });
        }
        let mut settings = contender.dispatch.clone();
        settings.batch.max_size = batch.unwrap_or(settings.batch.max_size);
        let instances = contender.instances.unwrap_or(self.instances).get();
        let what = Scenario::combined(scenario, |part| self.scenario.get(part).cloned())?;
        // Loads are given; those of rates follow from the work.
        let load = if self.rates.contains(&rate) {
            self.load_of(rate, &what.trace, settings.batch.max_size)
        } else {
            load
        };
        let bad = |error| Error::Scenario { scenario: scenario.to_owned(), error };
        what.faults.check(instances).map_err(bad)?;
        let (queries, warm_up) = what.length(self.queries.get(), self.warm_up);
        let stand_in = self.stand_in()?;
        let run = |repeat| Run {
            seed: self.seed.wrapping_add(u64::from(repeat)),
            queries,
            warm_up,
            service: self.service.clone(),
            backup_share: self.backup_share,
            parity_share: self.parity_share,
            stand_in,
            slots: self.slots.get(),
            deadline: self.deadline,
            lengths: contender.lengths,
            rival: contender.rival,
            frontends,
            simulated: self.simulated,
            ..Run::new(what.at(self.arrivals, rate), what.faults.clone(), instances, settings.clone())
        };
        let coded = settings.policy.is_coded();
        let follows = settings.policy == PolicyKind::ParmPlus && settings.coding.parm_plus.k_follows_load;
        let case = Case {
            scenario: scenario.to_owned(),
            load: self.simulated.closed.is_none().then_some(load),
            rate,
            batch: settings.batch.max_size,
            frontends,
            closed: self.simulated.closed,
            policy: name.to_owned(),
            k: (coded && !follows).then_some(settings.coding.k.get()),
            r: coded.then_some(settings.coding.r.get()),
        };
        let cell = Cell { case, runs: (0..self.repeats.get()).map(run).collect() };
        cell.check()?;
        Ok(cell)
    }

    fn contender(&self, name: &str) -> Result<Contender, Error> {
        if let Some(own) = self.policy.get(name) {
            return Ok(own.clone());
        }
        let rivals = RIVALS.iter().map(|(name, ..)| *name);
        let known = || POLICIES.iter().map(|(name, _)| *name).chain(rivals).collect::<Vec<_>>().join(", ");
        Contender::named(name, self.deployed)
            .ok_or_else(|| Error::UnknownPolicy { name: name.into(), known: known() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Option<Contender> {
        Contender::named(name, NonZeroU32::new(12).unwrap())
    }

    #[test]
    fn predefined_policies_exist_and_hedge_has_the_settings_that_are_served() {
        for (name, _) in POLICIES {
            assert!(named(name).is_some(), "{name} is missing");
        }
        assert_eq!(named("hope"), None);
        let hedge = PoolSettings { policy: PolicyKind::Hedge, ..PoolSettings::default() };
        assert_eq!(named("hedge").unwrap().dispatch, hedge);
    }

    #[test]
    fn only_coded_policies_come_in_variants() {
        let (two, three) = (NonZeroU8::new(2).unwrap(), NonZeroU8::new(3).unwrap());
        let names = |name: &str| {
            let variants = named(name).unwrap().variants(&[two, three], &[NonZeroU8::MIN]);
            let sizes = variants.into_iter().map(|(name, variant)| (name, variant.dispatch.coding.k.get()));
            sizes.collect::<Vec<_>>()
        };
        assert_eq!(names("parm"), [(" k=2 r=1".to_owned(), 2), (" k=3 r=1".to_owned(), 3)]);
        assert_eq!(names("hedge"), [(String::new(), 2)]);
    }

    #[test]
    fn coded_policies_run_for_every_k_and_batch() {
        let text = "policies = [\"equal\", \"parm\"]\nscenarios = [\"A\"]\nloads = [0.5]\nk = [2, 3]\nbatch = [1, \"auto\"]";
        let cells = Config::parse(text).unwrap().cells().unwrap();
        let names: Vec<_> =
            cells.iter().map(|cell| format!("{} {}", cell.case.policy, cell.case.batch)).collect();
        let expected =
            ["equal 1", "parm k=2 1", "parm k=3 1", "equal auto", "parm k=2 auto", "parm k=3 auto"];
        assert_eq!(names, expected);
        assert!(
            cells[0].case.faces_the_same(&cells[2].case) && !cells[0].case.faces_the_same(&cells[3].case)
        );
    }

    #[test]
    fn load_of_a_recording_follows_the_cost_of_its_rows() {
        let text = "policies = [\"equal\"]\nscenarios = [\"recorded\"]\nrates = [300.0]\ndeployed = 6\n\
                    batch = [\"auto\", 2, 1]\n\
                    service = { time_ms = { kind = \"constant\", value = 20.0 }, row_share = 0.02 }";
        let mut config = Config::parse(text).unwrap();
        // Recorded queries of four rows.
        let trace = (1..=400_u32).map(|n| f64::from(n.div_ceil(4)) / 75.0).collect();
        config.scenario.insert("recorded".into(), Scenario { trace, ..Scenario::default() });
        let loads: Vec<f64> = config.cells().unwrap().iter().filter_map(|cell| cell.case.load).collect();
        // A run of four rows takes 21.2 ms, 75 times a second; one of two rows 20.4 ms, 150 times; one of one row 20 ms.
        assert_eq!(loads, [0.265, 0.51, 1.0]);
    }

    #[test]
    fn scenarios_are_combined_with_own_and_predefined_ones() {
        let text = "policies = [\"equal\"]\nscenarios = [\"hosts+A\", \"sick-gpu+mine\"]\nloads = [0.5]\n\
                    [[scenario.mine.faults]]\nkind = \"wrong\"\nshare = 0.5\nwhen = { kind = \"always\" }";
        let cells = Config::parse(text).unwrap().cells().unwrap();
        let faults: Vec<usize> = cells.iter().map(|cell| cell.runs[0].faults.0.len()).collect();
        assert_eq!(faults, [2, 2]);
    }

    #[test]
    fn impossible_experiment_is_rejected_before_it_starts() {
        let refused = |text: &str| Config::parse(text).unwrap().cells().err().unwrap().to_string();
        assert!(refused("policies = [\"hope\"]").contains("hope"));
        assert!(refused("scenarios = [\"mayhem\"]").contains("mayhem"));
        assert!(refused("loads = []").contains("at least one load"));
        assert!(refused("loads = [-1.0]").contains("-1"));
        assert_eq!(refused("repeats = 4294967295"), "invalid repeats = 4294967295: give at most 10000");
        assert_eq!(refused("instances = 4294967295"), "invalid instances = 4294967295: give at most 100000");
        assert_eq!(refused("backup_share = 200.0"), "invalid backup_share = 200: give a share from 0 to 100");
    }
}
