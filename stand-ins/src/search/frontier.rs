//! Frontier: candidates by cost and agreement, and the chosen one.

use std::fmt;

use serde::Serialize;

use crate::graph::Work;
use crate::measure::{Comparison, Difference, Meanings, Share, Shares, Sureness};
use crate::workshop::Stored;

/// A candidate with less agreement is not chosen, whatever its cost. Servers withhold it: this is the default of
/// `frontend.dispatch.stand_in.agreement.floor`.
const LEAST_AGREEMENT: f64 = 0.8;
/// A costlier candidate is not recommended: it saves too little to answer in time.
const MOST_COST: f64 = 0.75;

/// A cost up to this factor above the limit is slightly more; this share of the errors is far less.
const LITTLE_MORE: f64 = 1.5;
const FAR_LESS: f64 = 0.5;

/// A stand-in that is faster than the deployed model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// Its family.
    pub name: String,
    /// How it was made.
    pub how: String,
    /// Times of runs of 1, 2, 4 and 8 rows, as shares of a query on the deployed model.
    pub cost: Shares,
    /// How its answers compare with the deployed model's.
    #[serde(flatten)]
    pub compared: Comparison,
    /// Whether a constant answer may agree as often.
    pub is_no_better: bool,
    /// Confidence of its answers, if these are classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sureness: Option<Sureness>,
    /// The ONNX file.
    #[serde(skip)]
    pub model: Stored,
}

/// A candidate that was rejected, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Its family.
    pub name: String,
    /// The reason.
    pub reason: String,
}

/// The reason for which a search ended before all candidates were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Interruption {
    /// The time limit.
    TimeLimit,
    /// An interrupt of the user.
    User,
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimeLimit => "the time limit ended the search",
            Self::User => "the search was interrupted",
        })
    }
}

/// The conditions of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Time of a query on the deployed model, in microseconds: the lower quartile.
    pub deployed_us: f64,
    /// Given rows, and how many of them are different.
    pub rows: usize,
    /// The number of different rows.
    pub distinct_rows: usize,
    /// Rows that candidates were made from.
    pub calibration_rows: usize,
    /// Additional rows that weights were refitted on.
    pub fitted_rows: usize,
    /// Rows that candidates were judged on.
    pub judged_rows: usize,
    /// The meanings of the outputs, with their reasons.
    pub meanings: Meanings,
    /// The different choices that the deployed model makes on the judged rows.
    pub answers: usize,
    /// The share of the judged rows on which a constant answer agrees with it.
    pub constant: Share,
    /// The operators with most of the deployed model's work.
    pub work: Vec<Work>,
    /// The deployed model's accuracy, if labels were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Share>,
    /// Confidence of the deployed model's answers, if labels were given.
    #[serde(rename = "deployed_sureness", skip_serializing_if = "Option::is_none")]
    pub sureness: Option<Sureness>,
    /// The reason if not all candidates were made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruption: Option<Interruption>,
    /// The reason to doubt the costs, if other work on the machine disturbed them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Frontier {
    /// The engine.
    pub engine: String,
    /// The maximum cost of a stand-in.
    pub limit: f64,
    /// The conditions of the measurement.
    #[serde(flatten)]
    pub setting: Setting,
    /// Candidates, the cheapest first.
    pub candidates: Vec<Candidate>,
    /// Rejected candidates.
    pub refused: Vec<Refused>,
    /// The name of the candidate with the highest agreement within the maximum cost.
    pub chosen: Option<String>,
}

impl Candidate {
    fn agreement(&self) -> f64 {
        self.compared.agreement.value
    }

    fn is_useful(&self) -> bool {
        self.agreement() >= LEAST_AGREEMENT && !self.is_no_better
    }
}

impl Frontier {
    pub(super) fn new(
        engine: &str,
        limit: f64,
        setting: Setting,
        mut candidates: Vec<Candidate>,
        refused: Vec<Refused>,
    ) -> Self {
        candidates.sort_by(|a, b| a.cost[0].total_cmp(&b.cost[0]));
        let fitting =
            candidates.iter().filter(|candidate| candidate.cost[0] <= limit && candidate.is_useful());
        // `max_by` returns the last maximum, which in reverse order is the cheapest.
        let chosen = fitting.rev().max_by(|a, b| a.agreement().total_cmp(&b.agreement()));
        let chosen = chosen.map(|candidate| candidate.name.clone());
        Self { engine: engine.into(), limit, setting, candidates, refused, chosen }
    }

    /// The agreement that a candidate must reach, in words.
    fn bar(&self) -> String {
        let constant = 100.0 * self.setting.constant.value;
        let least = 100.0 * LEAST_AGREEMENT;
        format!("{least:.0} % or more, and surely more often than a constant answer ({constant:.1} %)")
    }

    /// The chosen candidate.
    pub fn chosen(&self) -> Option<&Candidate> {
        let name = self.chosen.as_ref()?;
        self.candidates.iter().find(|candidate| candidate.name == *name)
    }

    /// Whether every other candidate costs more or agrees less often.
    pub fn is_on(&self, candidate: &Candidate) -> bool {
        !self.candidates.iter().any(|other| {
            let (cost, agreement) = (other.cost[0], other.agreement());
            cost <= candidate.cost[0]
                && agreement >= candidate.agreement()
                && (cost < candidate.cost[0] || agreement > candidate.agreement())
        })
    }

    /// A recommendation in one sentence.
    pub fn verdict(&self) -> String {
        let percent = |one: &Candidate| format!("{:.1} %", 100.0 * one.agreement());
        if let Some(chosen) = self.chosen() {
            let (name, cost) = (&chosen.name, chosen.cost[0]);
            let said = format!("{name} costs {cost:.2} and agrees on {}", percent(chosen));
            return match self.worth_more(chosen) {
                Some(other) => format!(
                    "{said}; {} costs {:.2} and agrees on {}: use --cost {:.2} if that is worth it",
                    other.name,
                    other.cost[0],
                    percent(other),
                    (other.cost[0] * 100.0).ceil() / 100.0
                ),
                None => said,
            };
        }
        let advice = match self
            .candidates
            .iter()
            .find(|candidate| candidate.is_useful() && candidate.cost[0] <= MOST_COST)
        {
            None if self.setting.interruption.is_some() => {
                format!("no candidate so far costs {MOST_COST} or less and agrees on {}", self.bar())
            }
            None if !self.candidates.is_empty() => format!(
                "nothing pays: no candidate at {MOST_COST} or less agrees on {}; hedge instead (--policy \
                 hedge), or give more rows",
                self.bar()
            ),
            Some(cheapest) => {
                let (name, cost) = (&cheapest.name, cheapest.cost[0]);
                let within = self.candidates.iter().any(|candidate| candidate.cost[0] <= self.limit);
                let cheaper = self.candidates.iter().any(|candidate| candidate.cost[0] < cost);
                let said = match within {
                    true => format!("no candidate at {} or less agrees on {}", self.limit, self.bar()),
                    false => format!("no candidate costs {} or less", self.limit),
                };
                let which = if cheaper { "the cheapest that agrees often enough" } else { "the cheapest" };
                format!(
                    "{said}: {which} is {name}, at {cost:.2} with {}; use --cost {:.2}, or hedge (--policy hedge)",
                    percent(cheapest),
                    (cost * 100.0).ceil() / 100.0
                )
            }
            None => format!(
                "nothing pays: no candidate is faster than the deployed model, which takes {:.0} us a query on this engine \
                 and machine; hedge instead (--policy hedge)",
                self.setting.deployed_us
            ),
        };
        match self.setting.interruption {
            Some(by @ Interruption::TimeLimit) => {
                format!("{by} before all candidates were made: raise --time-limit; {advice}")
            }
            Some(by @ Interruption::User) => {
                format!("{by} before all candidates were made: let it finish; {advice}")
            }
            None => advice + &self.whole(),
        }
    }

    /// The cheapest candidate that costs slightly more than the limit and errs far less than the chosen one.
    fn worth_more(&self, chosen: &Candidate) -> Option<&Candidate> {
        let errs = |candidate: &Candidate| 1.0 - candidate.agreement();
        let dear = self.candidates.iter().filter(|candidate| candidate.cost[0] > self.limit);
        let most = MOST_COST.min(LITTLE_MORE * self.limit);
        let mut little = dear.filter(|candidate| candidate.cost[0] <= most && candidate.is_useful());
        little.find(|candidate| errs(candidate) < FAR_LESS * errs(chosen))
    }

    /// The distribution of the deployed model's work, in a sentence: it shows the operators that no family reduces.
    fn whole(&self) -> String {
        let shares = self.setting.work.iter();
        let shares: Vec<String> =
            shares.map(|work| format!("{} {:.0} %", work.operator, 100.0 * work.share)).collect();
        match shares.is_empty() {
            true => String::new(),
            false => format!("; the deployed model's multiplications are in: {}", shares.join(", ")),
        }
    }
}

impl fmt::Display for Frontier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { deployed_us, calibration_rows, fitted_rows, judged_rows, accuracy, constant, .. } =
            &self.setting;
        writeln!(
            f,
            "deployed: {:.3} ms a query on {}, one thread; {calibration_rows} rows to make candidates, {fitted_rows} more to \
             refit weights, {judged_rows} to judge them; a constant answer agrees on {:.1} %",
            deployed_us / 1000.0,
            self.engine,
            100.0 * constant.value
        )?;
        if let Some(doubt) = &self.setting.doubt {
            writeln!(f, "warning: {doubt}")?;
        }
        let interval = |share: &Share| share.percent(1, "");
        let wide = self.candidates.iter().map(|candidate| candidate.name.len()).max().unwrap_or(0).max(9);
        write!(
            f,
            "\n   {:wide$}  {:>6} {:>6} {:>6} {:>6}  {:17}",
            "CANDIDATE", "1 ROW", "2", "4", "8", "AGREEMENT, %"
        )?;
        if let Some(accuracy) = accuracy {
            write!(f, "  ACCURACY, % (deployed {})", interval(accuracy))?;
        }
        let has = |of: fn(&Comparison) -> bool| self.candidates.iter().any(|one| of(&one.compared));
        if has(|one| one.difference.is_some()) {
            write!(f, "  {:19}", "DIFFERENCE, MEAN MAX")?;
        }
        if has(|one| one.cosine.is_some()) {
            write!(f, "  MEAN COSINE  NEIGHBOURS, %")?;
        }
        for candidate in &self.candidates {
            let mark = match () {
                () if self.chosen.as_ref() == Some(&candidate.name) => '*',
                () if self.is_on(candidate) => '+',
                () => ' ',
            };
            write!(f, "\n {mark} {:wide$} ", candidate.name)?;
            candidate.cost.iter().try_for_each(|cost| write!(f, " {cost:>6.3}"))?;
            let Comparison { agreement, difference, accuracy, cosine, neighbours } = &candidate.compared;
            write!(f, "  {:17}", interval(agreement))?;
            if let Some(accuracy) = accuracy {
                write!(f, "  {}", interval(accuracy))?;
            }
            if let Some(Difference { mean, largest, .. }) = difference {
                write!(f, "  {:20}", format!("{mean:.2e} {largest:.2e}"))?;
            }
            if let Some(cosine) = cosine {
                let kept = neighbours.map_or("-".into(), |kept| format!("{:.1}", 100.0 * kept));
                write!(f, "  {cosine:<11.4}  {kept:13}")?;
            }
            write!(f, "  {}", candidate.how)?;
            if let Some(Difference { left_out: left_out @ 1.., .. }) = difference {
                write!(f, "; difference without {left_out} rows that servers withhold")?;
            }
        }
        for Refused { name, reason } in &self.refused {
            write!(f, "\n - {name}: {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{candidate, setting};

    fn frontier(limit: f64, candidates: Vec<Candidate>) -> Frontier {
        Frontier::new("tract", limit, setting(), candidates, Vec::new())
    }

    #[test]
    fn frontier_chooses_the_best_that_fits_then_the_cheapest() {
        let all = vec![candidate("a", 0.2, 0.9), candidate("b", 0.1, 0.9), candidate("c", 0.4, 1.0)];
        assert_eq!(frontier(0.25, all.clone()).chosen.as_deref(), Some("b"));
        assert_eq!(frontier(0.5, all.clone()).chosen.as_deref(), Some("c"));
        let found = frontier(0.25, all);
        let on: Vec<bool> = found.candidates.iter().map(|candidate| found.is_on(candidate)).collect();
        assert_eq!(on, [true, false, true]);
    }

    #[test]
    fn report_warns_of_a_busy_machine() {
        let all = vec![candidate("a", 0.2, 0.9)];
        let quiet = frontier(0.25, all.clone());
        let doubt = Some("the machine is busy".to_owned());
        let busy = Frontier::new("tract", 0.25, Setting { doubt, ..setting() }, all, Vec::new());
        assert!(busy.to_string().contains("\nwarning: the machine is busy\n"), "{busy}");
        assert!(!quiet.to_string().contains("warning"), "{quiet}");
    }

    #[test]
    fn verdict_names_a_better_candidate_slightly_above_the_limit() {
        let all = vec![
            candidate("small", 0.24, 0.91),
            candidate("light", 0.254, 0.99),
            candidate("whole", 0.9, 1.0),
        ];
        let said = frontier(0.25, all.clone()).verdict();
        assert!(said.starts_with("small costs 0.24") && said.contains("light costs 0.25"), "{said}");
        assert!(said.contains("--cost 0.26"), "{said}");
        // No alternative is named if it errs as often or costs far more, or if the chosen one never errs.
        let never = vec![candidate("small", 0.24, 1.0), candidate("light", 0.26, 1.0)];
        assert!(
            !frontier(0.25, never).verdict().contains("worth"),
            "an alternative to a candidate without errors"
        );
        assert!(!frontier(0.1, all[..1].to_vec()).verdict().contains("worth"), "nothing fits");
        let alike =
            vec![candidate("small", 0.24, 0.91), candidate("light", 0.26, 0.92), candidate("dear", 0.5, 1.0)];
        assert_eq!(frontier(0.25, alike).verdict(), "small costs 0.24 and agrees on 91.0 %");
    }

    #[test]
    fn verdict_gives_advice_when_no_candidate_fits() {
        let dear = frontier(0.25, vec![candidate("exact", 0.744, 1.0)]).verdict();
        assert!(dear.contains("exact, at 0.74") && dear.contains("--cost 0.75"), "{dear}");
        let wrong = frontier(0.25, vec![candidate("pruned-25", 0.1, 0.2)]);
        let said = wrong.verdict();
        assert!(wrong.chosen.is_none() && said.contains("80 % or more"), "{said}");
        // A cheap but wrong candidate is mentioned.
        let both = vec![candidate("pruned-25", 0.1, 0.2), candidate("int8", 0.3, 0.9)];
        let said = frontier(0.25, both).verdict();
        assert!(said.starts_with("no candidate at 0.25 or less agrees on 80 % or more"), "{said}");
        assert!(said.contains("agrees often enough is int8, at 0.30 with 90.0 %"), "{said}");
        let above = vec![candidate("pruned-25", 0.28, 0.3), candidate("int8", 0.3, 0.9)];
        let said = frontier(0.25, above).verdict();
        assert!(
            said.starts_with("no candidate costs 0.25 or less: the cheapest that agrees often enough"),
            "{said}"
        );
        let coin = Candidate { is_no_better: true, ..candidate("coin", 0.2, 0.93) };
        let said = frontier(0.25, vec![coin.clone()]);
        assert!(
            said.chosen.is_none() && said.verdict().contains("constant answer (40.0 %)"),
            "{}",
            said.verdict()
        );
        let exact = frontier(0.5, vec![candidate("exact", 0.96, 1.0)]).verdict();
        assert!(exact.starts_with("nothing pays") && !exact.contains("--cost"), "{exact}");
        let none = frontier(0.25, Vec::new()).verdict();
        assert!(
            none.starts_with("nothing pays") && none.contains("30 us") && none.contains("hedge"),
            "{none}"
        );
        assert!(none.ends_with("multiplications are in: Conv in groups 83 %"), "{none}");
    }
    #[test]
    fn verdict_of_a_stopped_search_advises_to_let_it_finish() {
        let of = |interruption, candidates: Vec<Candidate>| {
            let setting = Setting { interruption: Some(interruption), ..setting() };
            Frontier::new("tract", 0.25, setting, candidates, Vec::new()).verdict()
        };
        for made in [vec![candidate("exact", 0.99, 1.0)], Vec::new()] {
            let said = of(Interruption::TimeLimit, made.clone());
            assert!(said.starts_with("the time limit ended the search"), "{said}");
            assert!(said.contains("raise --time-limit") && !said.contains("hedge"), "{said}");
            assert!(!said.contains("nothing pays") && !said.contains("more rows"), "{said}");
            let said = of(Interruption::User, made);
            assert!(said.contains("interrupted") && !said.contains("--time-limit"), "{said}");
        }
        let dear = of(Interruption::TimeLimit, vec![candidate("int8", 0.5, 0.9)]);
        assert!(dear.contains("raise --time-limit") && dear.contains("--cost 0.50"), "{dear}");
        let chosen = of(Interruption::TimeLimit, vec![candidate("int8", 0.2, 0.9)]);
        assert_eq!(chosen, "int8 costs 0.20 and agrees on 90.0 %");
    }
}
