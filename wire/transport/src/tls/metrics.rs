//! What Prometheus is told of TLS, in its text format: these few numbers need no registry, which this crate does without.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use super::Tls;

impl Tls {
    /// The metrics, where anything is TLS.
    pub fn metrics(&self) -> String {
        let mut page = String::new();
        let Some(charter) = &self.0 else { return page };
        let counts = &charter.counts;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        if let Some(end) = charter.identity().not_after {
            let seconds = end.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            family(
                &mut page,
                (
                    "parm_tls_certificate_expires_seconds",
                    "Until when the certificate in use is valid, in Unix time",
                ),
                "gauge",
                &[("", seconds)],
            );
        }
        family(
            &mut page,
            (
                "parm_tls_files_stale",
                "1 while the files of [tls] cannot be used as they are, and those before them are in force",
            ),
            "gauge",
            &[("", u64::from(counts.stale.load(Ordering::Relaxed)))],
        );
        family(
            &mut page,
            ("parm_tls_reloads_total", "Changes of the files of [tls] that were taken over"),
            "counter",
            &[("", count(&counts.reloads))],
        );
        family(
            &mut page,
            (
                "parm_tls_connections_total",
                "Connections of callers by what they speak, and those that were refused",
            ),
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
                "Workers that did not speak TLS and were spoken to in plain, under tls.mode prefer",
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
