//! Decisions: functions of the state that change nothing and send nothing.

pub(crate) mod affordable;
pub(crate) mod batching;
pub(crate) mod blame;
pub(crate) mod check;
pub(crate) mod company;
pub(crate) mod finish;
pub(crate) mod gain;
pub(crate) mod hedging;
pub(crate) mod late_work;
pub(crate) mod lateness;
pub(crate) mod other_work;
pub(crate) mod outage;
pub(crate) mod overload;
pub(crate) mod sites;
pub(crate) mod stand_in;
pub(crate) mod suits;
pub(crate) mod turn;
pub(crate) mod unexplored;
pub(crate) mod waiting;
