//! One setting and its value.

use std::fmt;
use std::num::{NonZeroU8, NonZeroU32};

use parm_settings::{BatchSize, Factor, Fraction, PoolSettings};

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
    /// After how many times the usual time a query is late, and takes an approximate answer.
    Late(Factor),
    /// Duplicates of late jobs, as a share of all; `None` for none.
    Hedge(Option<u8>),
    /// Rows of a batch.
    Batch(BatchSize),
    /// Most answers of stand-ins, in percent.
    Bound(u8),
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
            Knob::Late(factor) => {
                coding.grace.factor = *factor;
                settings.stand_in.late_factor = *factor;
            }
            Knob::Hedge(None) => coding.parm_plus.hedge = false,
            Knob::Hedge(Some(percent)) => settings.hedge.budget.ratio = Fraction::percent(*percent),
            Knob::Batch(rows) => settings.batch.max_size = *rows,
            Knob::Bound(percent) => settings.stand_in.bound = Fraction::percent(*percent),
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
            Knob::Late(factor) => write!(f, "late after {}x", factor.get()),
            Knob::Hedge(None) => f.write_str("no hedge"),
            Knob::Hedge(Some(percent)) => write!(f, "hedge {percent} %"),
            Knob::Batch(rows) => write!(f, "batch {rows}"),
            Knob::Bound(percent) => write!(f, "at most {percent} %"),
        }
    }
}
