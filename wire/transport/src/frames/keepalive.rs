//! Detects a peer that is connected but silent: stopped, hung, or behind a broken network.
//!
//! Every received byte counts as a sign of life, not only a whole frame: one of 48 MB takes ten seconds over a slow
//! link. A large outgoing frame precedes the ping, so the peer's timeout starts when the ping was sent. Until then the
//! peer must keep reading.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Config;
use super::frame::Frame;
use super::header::Kind;
use super::writer::{Urgency, Writer};

/// Counts what arrives from the peer.
#[derive(Debug, Default)]
pub(super) struct Heard(AtomicU64);

impl Heard {
    pub(super) fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns when the peer did not respond to a ping in time.
pub(super) async fn watch(heard: &Heard, writer: &Writer, config: &Config) {
    loop {
        let before = heard.count();
        tokio::time::sleep(config.ping_interval).await;
        if heard.count() != before {
            continue;
        }
        if writer.send(Frame::bare(Kind::Ping, 0), Urgency::Now).is_err() {
            return;
        }
        let asked = writer.accepted();
        loop {
            let written = writer.written();
            tokio::time::sleep(config.ping_timeout).await;
            if heard.count() != before {
                break;
            }
            if written >= asked || writer.written() == written {
                return;
            }
        }
    }
}
