//! Metrics of stand-ins: jobs, answers, cost and agreement.

use parm_dispatch::PoolStatus;
use prometheus::{GaugeVec, IntGaugeVec, Opts, Registry};

use super::counts::{Count, Counted, Counts};
use super::series::Series;
use super::{MODEL, register};

/// Metrics of all models.
pub(super) struct StandInFamilies {
    counts: Counts,
    cost: GaugeVec,
    cost_apart: GaugeVec,
    agreement: GaugeVec,
    withheld: IntGaugeVec,
    in_outage: IntGaugeVec,
}

/// Handles of one model.
pub(super) struct StandIns {
    pub(super) counted: Counted,
    cost: [Series<GaugeVec>; 4],
    cost_apart: [Series<GaugeVec>; 4],
    agreement: Series<GaugeVec>,
    withheld: Series<IntGaugeVec>,
    in_outage: Series<IntGaugeVec>,
}

/// Rows for which the cost is shown.
const ROWS: [&str; 4] = ["1", "2", "4", "8"];

const COUNTS: &[Count] = &[Count {
    name: "parm_stand_ins_total",
    help: "Queries sent to a stand-in at once (spare) or when late (late), or not sent because the budget was spent (refused); its answers served, of these while no instance with the model answered (outage), rejected for low confidence or as unusable (unsure), withheld because too many answers were approximate (over_bound), or not needed (wasted)",
    label: "event",
    counts: &[
        ("spare", |c| c.stand_ins_spare),
        ("late", |c| c.stand_ins_late),
        ("refused", |c| c.stand_ins_refused),
        ("served", |c| c.stand_ins_served),
        ("outage", |c| c.stand_ins_outage),
        ("unsure", |c| c.stand_ins_unsure),
        ("over_bound", |c| c.stand_ins_over_bound),
        ("wasted", |c| c.stand_ins_wasted),
    ],
}];

impl StandInFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            counts: Counts::new(registry, COUNTS),
            cost: register(
                registry,
                GaugeVec::new(
                    Opts::new(
                        "parm_stand_in_cost",
                        "Time of a stand-in's job by rows, relative to a query's, each divided by the speed of its instance; NaN without a stand-in",
                    ),
                    &["model", "version", "rows"],
                ),
            ),
            cost_apart: register(
                registry,
                GaugeVec::new(
                    Opts::new(
                        "parm_stand_in_cost_apart",
                        "Time of a stand-in's job by rows on instances without the model, relative to a query's on its own instances, so that faster or slower processors count; NaN without such instances",
                    ),
                    &["model", "version", "rows"],
                ),
            ),
            agreement: register(
                registry,
                GaugeVec::new(
                    Opts::new(
                        "parm_stand_in_agreement",
                        "Share of recent predictions that their stand-ins agreed with; NaN if too few were compared",
                    ),
                    MODEL,
                ),
            ),
            withheld: register(
                registry,
                IntGaugeVec::new(
                    Opts::new(
                        "parm_stand_ins_withheld",
                        "1 while stand-ins' answers are withheld because they agree too rarely",
                    ),
                    MODEL,
                ),
            ),
            in_outage: register(
                registry,
                IntGaugeVec::new(
                    Opts::new(
                        "parm_stand_ins_in_outage",
                        "1 while stand-ins answer all queries because no instance with the model answers",
                    ),
                    MODEL,
                ),
            ),
        }
    }

    pub(super) fn of(&self, labels: [&str; 2]) -> StandIns {
        StandIns {
            counted: self.counts.of(labels),
            cost: ROWS.map(|rows| Series::new(&self.cost, &[labels[0], labels[1], rows])),
            cost_apart: ROWS.map(|rows| Series::new(&self.cost_apart, &[labels[0], labels[1], rows])),
            agreement: Series::new(&self.agreement, &labels),
            withheld: Series::new(&self.withheld, &labels),
            in_outage: Series::new(&self.in_outage, &labels),
        }
    }
}

impl StandIns {
    /// Whether the model has or had a stand-in.
    pub(super) fn are_used(&self, status: &PoolStatus) -> bool {
        status.stand_in_cost.is_some() || self.withheld.is_used()
    }

    /// Updates costs and agreement; unknown values are NaN.
    pub(super) fn refresh(&self, status: &PoolStatus) {
        let costs = [(&self.cost, status.stand_in_cost), (&self.cost_apart, status.stand_in_cost_apart)];
        for (gauges, cost) in costs {
            for (at, gauge) in gauges.iter().enumerate() {
                gauge.set(cost.map_or(f64::NAN, |cost| cost.rows[at]));
            }
        }
        self.agreement.set(status.agreement.unwrap_or(f64::NAN));
        self.withheld.set(status.withheld.into());
        self.in_outage.set(status.in_outage.into());
    }

    /// Removes the series from the page.
    pub(super) fn forget(&self) {
        self.counted.forget();
        self.cost.iter().chain(&self.cost_apart).chain([&self.agreement]).for_each(Series::forget);
        self.withheld.forget();
        self.in_outage.forget();
    }
}
