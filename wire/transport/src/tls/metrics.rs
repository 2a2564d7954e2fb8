//! TLS metrics in the text format of Prometheus. They are few, and this crate does without a registry.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use super::Tls;

impl Tls {
    /// The metrics; empty if TLS is off.
    pub fn metrics(&self) -> String {
        let mut page = String::new();
        let Some(charter) = &self.0 else { return page };
        let counts = &charter.counts;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        if let Some(end) = charter.identity().not_after {
            let seconds = end.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            family(
                &mut page,
                ("parm_tls_certificate_expires_seconds", "Expiry of the current certificate, in Unix time"),
                "gauge",
                &[("", seconds)],
            );
        }
        family(
            &mut page,
            (
                "parm_tls_files_stale",
                "1 while the files of [tls] are invalid and the previous ones are in use",
            ),
            "gauge",
            &[("", u64::from(counts.stale.lock().is_some()))],
        );
        family(
            &mut page,
            ("parm_tls_reloads_total", "Changes of the files of [tls] that were applied"),
            "counter",
            &[("", count(&counts.reloads))],
        );
        family(
            &mut page,
            ("parm_tls_connections_total", "Accepted connections by protocol, and rejected ones"),
            "counter",
            &[
                ("{spoken=\"tls\"}", count(&counts.secured)),
                ("{spoken=\"plain\"}", count(&counts.plain)),
                ("{spoken=\"refused\"}", count(&counts.refused)),
            ],
        );
        family(
            &mut page,
            (
                "parm_tls_fallbacks_total",
                "Connections to workers that fell back to plain text, with tls.mode prefer",
            ),
            "counter",
            &[("", count(&counts.fallbacks))],
        );
        page
    }
}

fn family(page: &mut String, (name, help): (&str, &str), kind: &str, series: &[(&str, u64)]) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in series {
        let _ = writeln!(page, "{name}{labels} {value}");
    }
}
