//! Metrics of stand-ins: what was run, given to clients and held back, what it costs and how often it agrees.

use parm_dispatch::PoolStatus;
use prometheus::{GaugeVec, IntGaugeVec, Opts, Registry};

use super::counts::{Count, Counted, Counts};
use super::series::Series;
use super::{MODEL, register};

/// The metrics of all models.
pub(super) struct StandInFamilies {
    counts: Counts,
    cost: GaugeVec,
    agreement: GaugeVec,
    withheld: IntGaugeVec,
}

/// Handles of one model.
pub(super) struct StandIns {
    pub(super) counted: Counted,
    cost: [Series<GaugeVec>; 4],
    agreement: Series<GaugeVec>,
    withheld: Series<IntGaugeVec>,
}

/// Rows for which the cost is told.
const ROWS: [&str; 4] = ["1", "2", "4", "8"];

const COUNTS: &[Count] = &[Count {
    name: "parm_stand_ins_total",
    help: "Queries given to a stand-in at once (spare) or because they were late (late), or not for want of budget (refused); its answers given (served), too unsure or unusable (unsure), held back because too many were approximate (over_bound), given to nobody (wasted)",
    label: "event",
    counts: &[
        ("spare", |c| c.stand_ins_spare),
        ("late", |c| c.stand_ins_late),
        ("refused", |c| c.stand_ins_refused),
        ("served", |c| c.stand_ins_served),
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
                        "Time of a stand-in's job of so many rows, as a share of a query's; NaN without a stand-in",
                    ),
                    &["model", "version", "rows"],
                ),
            ),
            agreement: register(
                registry,
                GaugeVec::new(
                    Opts::new(
                        "parm_stand_in_agreement",
                        "Share of the latest predictions that their stand-ins agreed with; NaN where too few were compared",
                    ),
                    MODEL,
                ),
            ),
            withheld: register(
                registry,
                IntGaugeVec::new(
                    Opts::new(
                        "parm_stand_ins_withheld",
                        "1 while stand-ins agree too seldom for clients to be given their answers",
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
            agreement: Series::new(&self.agreement, &labels),
            withheld: Series::new(&self.withheld, &labels),
        }
    }
}

impl StandIns {
    /// Whether the model has a stand-in, or had one.
    pub(super) fn are_used(&self, status: &PoolStatus) -> bool {
        status.stand_in_cost.is_some() || self.withheld.is_used()
    }

    /// How stand-ins are doing; what is not known is no number, as nothing would be true.
    pub(super) fn refresh(&self, status: &PoolStatus) {
        for (at, gauge) in self.cost.iter().enumerate() {
            gauge.set(status.stand_in_cost.map_or(f64::NAN, |cost| cost.rows[at]));
        }
        self.agreement.set(status.agreement.unwrap_or(f64::NAN));
        self.withheld.set(status.withheld.into());
    }
}
