//! Metrics of stand-ins: what was run, given to clients and held back, what it costs and how often it agrees.

use parm_dispatch::{Counters, PoolStatus};
use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use super::series::Series;
use super::{MODEL, register};

/// The metrics of all models.
pub(super) struct Families {
    events: IntCounterVec,
    cost: GaugeVec,
    agreement: GaugeVec,
    withheld: IntGaugeVec,
}

/// Handles of one model.
pub(super) struct StandIns {
    spare: Series<IntCounterVec>,
    late: Series<IntCounterVec>,
    refused: Series<IntCounterVec>,
    served: Series<IntCounterVec>,
    unsure: Series<IntCounterVec>,
    over_bound: Series<IntCounterVec>,
    wasted: Series<IntCounterVec>,
    cost: [Series<GaugeVec>; 4],
    agreement: Series<GaugeVec>,
    withheld: Series<IntGaugeVec>,
}

/// Rows for which the cost is told.
const ROWS: [&str; 4] = ["1", "2", "4", "8"];

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            events: register(
                registry,
                IntCounterVec::new(
                    Opts::new(
                        "parm_stand_ins_total",
                        "Queries given to a stand-in at once (spare) or because they were late (late), or not for want of budget (refused); its answers given (served), too unsure or unusable (unsure), held back because too many were approximate (over_bound), given to nobody (wasted)",
                    ),
                    &["model", "version", "event"],
                ),
            ),
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
        let event = |event| Series::new(&self.events, &[labels[0], labels[1], event]);
        StandIns {
            spare: event("spare"),
            late: event("late"),
            refused: event("refused"),
            served: event("served"),
            unsure: event("unsure"),
            over_bound: event("over_bound"),
            wasted: event("wasted"),
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

    /// What the dispatcher counted, with where it goes.
    pub(super) fn counted(&self, counters: &Counters) -> [(&Series<IntCounterVec>, u64); 7] {
        [
            (&self.spare, counters.stand_ins_spare),
            (&self.late, counters.stand_ins_late),
            (&self.refused, counters.stand_ins_refused),
            (&self.served, counters.stand_ins_served),
            (&self.unsure, counters.stand_ins_unsure),
            (&self.over_bound, counters.stand_ins_over_bound),
            (&self.wasted, counters.stand_ins_wasted),
        ]
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
