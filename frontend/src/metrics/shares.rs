//! Metrics of the shares of instances' time, as this frontend gave it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use parm_dispatch::{Account, Payer};
use prometheus::{CounterVec, IntGaugeVec, Opts, Registry};

use super::register;

/// A share that is set up, or the model whose own it is.
const PAYER: &[&str] = &["share", "model"];

/// The metrics of all shares.
pub(super) struct ShareFamilies {
    used: CounterVec,
    entitled: CounterVec,
    waiting: IntGaugeVec,
    /// Seconds used and due that were counted before.
    counted: Mutex<BTreeMap<Payer, (f64, f64)>>,
}

impl ShareFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name, help| register(registry, CounterVec::new(Opts::new(name, help), PAYER));
        let waiting = Opts::new("parm_share_waiting", "Requests that wait for an instance, by share");
        let used = "Seconds of instances' time that each share used";
        let entitled = "Seconds of instances' time that its weight gave each share while it wanted some";
        Self {
            used: counter("parm_share_used_seconds_total", used),
            entitled: counter("parm_share_entitled_seconds_total", entitled),
            waiting: register(registry, IntGaugeVec::new(waiting, PAYER)),
            counted: Mutex::default(),
        }
    }

    /// Counts what accounts say by now; versions of one model have accounts of their own, and count together.
    pub(super) fn refresh(&self, accounts: &[(Payer, [String; 2], Account)]) {
        let mut counted = self.counted.lock();
        let mut waiting = BTreeMap::<&[String; 2], i64>::new();
        for (payer, labels, account) in accounts {
            // One that was closed and opened again began anew.
            let new = |now: f64, before: f64| if now < before { now } else { now - before };
            let before = counted.insert(*payer, (account.used, account.entitled)).unwrap_or_default();
            self.used.with_label_values(labels).inc_by(new(account.used, before.0));
            self.entitled.with_label_values(labels).inc_by(new(account.entitled, before.1));
            *waiting.entry(labels).or_default() += i64::from(account.waiting);
        }
        counted.retain(|known, _| accounts.iter().any(|(payer, ..)| payer == known));
        for (labels, count) in waiting {
            self.waiting.with_label_values(labels).set(count);
        }
    }
}
