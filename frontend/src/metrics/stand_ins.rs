//! Metrics of stand-ins: jobs, answers, cost and agreement.

use prometheus::{GaugeVec, IntGaugeVec, Opts, Registry};

use super::counts::{Count, Counted, Counts};
use super::series::Series;
use super::{MODEL, register};
use crate::serve::reading::ModelReading;

/// Metrics of all models.
pub(super) struct StandInFamilies {
    counts: Counts,
    cost: GaugeVec,
    agreement: GaugeVec,
    withheld: IntGaugeVec,
    in_outage: IntGaugeVec,
}

/// Handles of one model.
pub(super) struct StandIns {
    pub(super) counted: Counted,
    cost: [Series<GaugeVec>; 4],
    agreement: Series<GaugeVec>,
    withheld: Series<IntGaugeVec>,
    in_outage: Series<IntGaugeVec>,
}

/// Rows for which the cost is shown.
const ROWS: [&str; 4] = ["1", "2", "4", "8"];

const COUNTS: &[Count] = &[Count {
    name: "parm_stand_ins_total",
    help: "Queries sent to a stand-in because they were late (late); its answers served, of these while no instance with the model answered (outage), rejected for low confidence or as unusable (unsure), late queries that waited because too many answers were approximate (over_bound), or not needed (wasted)",
    label: "event",
    counts: &[
        ("late", |c| c.stand_ins_late),
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
            agreement: Series::new(&self.agreement, &labels),
            withheld: Series::new(&self.withheld, &labels),
            in_outage: Series::new(&self.in_outage, &labels),
        }
    }
}

impl StandIns {
    /// Whether the model has or had a stand-in.
    pub(super) fn are_used(&self, reading: &ModelReading) -> bool {
        // The dispatcher knows no cost while the answers are withheld, and before both models have run.
        let is_told = reading.withheld || reading.in_outage || reading.stand_in_cost.is_some();
        is_told || self.withheld.is_used()
    }

    /// Updates costs and agreement; unknown values are NaN.
    pub(super) fn refresh(&self, reading: &ModelReading) {
        for (at, gauge) in self.cost.iter().enumerate() {
            gauge.set(reading.stand_in_cost.map_or(f64::NAN, |cost| cost[at]));
        }
        self.agreement.set(reading.agreement.unwrap_or(f64::NAN));
        self.withheld.set(reading.withheld.into());
        self.in_outage.set(reading.in_outage.into());
    }

    /// Removes the series from the page.
    pub(super) fn forget(&self) {
        self.counted.forget();
        self.cost.iter().chain([&self.agreement]).for_each(Series::forget);
        self.withheld.forget();
        self.in_outage.forget();
    }
}
