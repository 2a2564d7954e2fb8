//! One setting and its value.

use std::fmt;
use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

use parm_settings::{BatchSize, Factor, Fraction, PoolSettings, Usual};

use crate::Coded;

/// One setting and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Knob {
    /// Groups of one size.
    Code(Coded),
    /// Groups whose size follows the load, among those of these codes.
    Following(Vec<Coded>),
    /// Instances reserved for parities; `None` for the paper's share.
    Split(Option<u32>),
    /// How long reconstructions are held back, as a multiple of the usual time.
    Grace(Factor),
    /// The statistic of the usual time.
    Usual(Usual),
    /// Duplicates of late jobs, as a share of all; `None` for none.
    Hedge(Option<u8>),
    /// Rows of a batch, and microseconds that a query waits for others.
    Batch(BatchSize, u64),
    /// Whether stand-ins also run for queries that are not late, on idle instances.
    Spare(bool),
    /// Medians after which a query is late for its stand-in.
    After(Factor),
    /// Most answers of stand-ins, in percent.
    Bound(u8),
    /// Whether slow instances are ejected.
    Ejection(bool),
}

impl Knob {
    /// Applies it to settings.
    pub(super) fn turn(&self, settings: &mut PoolSettings) {
        let coding = &mut settings.coding;
        match self {
            Knob::Code(code) => {
                code_of(code, settings);
                settings.coding.parm_plus.k_follows_load = false;
            }
            Knob::Following(codes) => {
                codes.iter().for_each(|code| code_of(code, settings));
                // A single code is set for groups of all sizes; if the codes differ, it is left unset.
                let alike = codes.windows(2).all(|two| two[0].code == two[1].code);
                settings.coding.code = settings.coding.code.filter(|_| alike);
                let k = |code: &Coded| NonZeroU8::new(code.k);
                settings.coding.k = codes.iter().filter_map(k).min().unwrap_or(settings.coding.k);
                settings.coding.k_choices =
                    codes.iter().filter_map(k).filter(|k| *k != settings.coding.k).collect();
                settings.coding.parm_plus.k_follows_load = true;
            }
            Knob::Split(kept) => coding.parity_instances = kept.and_then(NonZeroU32::new),
            Knob::Grace(factor) => coding.grace.factor = *factor,
            Knob::Usual(usual) => coding.grace.of = *usual,
            Knob::Hedge(None) => coding.parm_plus.hedge = false,
            Knob::Hedge(Some(percent)) => settings.hedge.budget.ratio = Fraction::percent(*percent),
            Knob::Batch(rows, wait_us) => {
                settings.batch.max_size = *rows;
                settings.batch.max_delay = Duration::from_micros(*wait_us);
            }
            Knob::Spare(spare) => settings.stand_in.spare = *spare,
            Knob::After(factor) => {
                settings.stand_in.late_factor = *factor;
                settings.stand_in.grace.factor = *factor;
            }
            Knob::Bound(percent) => settings.stand_in.bound = Fraction::percent(*percent),
            Knob::Ejection(enabled) => settings.ejection.enabled = *enabled,
        }
    }
}

fn code_of(code: &Coded, settings: &mut PoolSettings) {
    let coding = &mut settings.coding;
    coding.k = NonZeroU8::new(code.k).unwrap_or(coding.k);
    coding.r = NonZeroU8::new(code.r).unwrap_or(coding.r);
    coding.code = code.code;
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Knob::Code(code) => write!(f, "k={} r={}", code.k, code.r),
            Knob::Following(codes) => {
                let (least, most) = (codes.iter().map(|c| c.k).min(), codes.iter().map(|c| c.k).max());
                let r = codes.first().map_or(1, |code| code.r);
                write!(f, "k={}..{} by load r={r}", least.unwrap_or(1), most.unwrap_or(1))
            }
            Knob::Split(None) => f.write_str("paper's split"),
            Knob::Split(Some(kept)) => write!(f, "{kept} for parities"),
            Knob::Grace(factor) => write!(f, "grace {}x", factor.get()),
            Knob::Usual(Usual::Median) => f.write_str("of median"),
            Knob::Usual(Usual::Tail) => f.write_str("of tail"),
            Knob::Hedge(None) => f.write_str("no hedge"),
            Knob::Hedge(Some(percent)) => write!(f, "hedge {percent} %"),
            Knob::Batch(rows, 0) => write!(f, "batch {rows}"),
            Knob::Batch(rows, wait_us) => write!(f, "batch {rows} in {wait_us} us"),
            Knob::Spare(true) => f.write_str("spare"),
            Knob::Spare(false) => f.write_str("late only"),
            Knob::After(factor) => write!(f, "after {}x", factor.get()),
            Knob::Bound(percent) => write!(f, "at most {percent} %"),
            Knob::Ejection(true) => f.write_str("ejection"),
            Knob::Ejection(false) => f.write_str("no ejection"),
        }
    }
}
