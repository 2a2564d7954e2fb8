//! Metrics of shares: instance time used and entitled, as this frontend assigned it.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use parm_shares::Account;
use prometheus::{CounterVec, IntGaugeVec, Opts, Registry};

use super::register;
use crate::serve::reading::Payer;

/// Label values: a configured share, or the model whose own share it is.
const PAYER: &[&str] = &["share", "model"];

/// Metrics of all shares.
pub(crate) struct ShareFamilies {
    used: CounterVec,
    entitled: CounterVec,
    waiting: IntGaugeVec,
    /// Seconds used and entitled that were counted before.
    counted: Mutex<BTreeMap<Payer, (f64, f64)>>,
    /// Labels of the present series.
    shown: Mutex<BTreeSet<[String; 2]>>,
}

impl ShareFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name, help| register(registry, CounterVec::new(Opts::new(name, help), PAYER));
        let waiting = Opts::new("parm_share_waiting", "Requests waiting for an instance, by share");
        let used = "Seconds of instance time that each share used";
        let entitled =
            "Seconds of instance time that each share was entitled to by its weight while it had jobs";
        Self {
            used: counter("parm_share_used_seconds_total", used),
            entitled: counter("parm_share_entitled_seconds_total", entitled),
            waiting: register(registry, IntGaugeVec::new(waiting, PAYER)),
            counted: Mutex::default(),
            shown: Mutex::default(),
        }
    }

    /// Adds the changes of the accounts. Versions of one model have separate accounts and are summed.
    pub(crate) fn refresh(&self, accounts: &[(Payer, [String; 2], Account)]) {
        let mut counted = self.counted.lock();
        let mut waiting = BTreeMap::<&[String; 2], i64>::new();
        for (payer, labels, account) in accounts {
            // An account that was closed and opened again restarts at zero.
            let new = |now: f64, before: f64| if now < before { now } else { now - before };
            let before = counted.insert(*payer, (account.used, account.entitled)).unwrap_or_default();
            self.used.with_label_values(labels).inc_by(new(account.used, before.0));
            self.entitled.with_label_values(labels).inc_by(new(account.entitled, before.1));
            *waiting.entry(labels).or_default() += i64::from(account.waiting);
        }
        counted.retain(|known, _| accounts.iter().any(|(payer, ..)| payer == known));
        let shown: BTreeSet<[String; 2]> = waiting.keys().copied().cloned().collect();
        for (labels, count) in waiting {
            self.waiting.with_label_values(labels).set(count);
        }
        // Models that are gone would leave their last values behind, and more of them from day to day.
        for labels in std::mem::replace(&mut *self.shown.lock(), shown.clone()).difference(&shown) {
            let _ = self.used.remove_label_values(labels);
            let _ = self.entitled.remove_label_values(labels);
            let _ = self.waiting.remove_label_values(labels);
        }
    }
}
