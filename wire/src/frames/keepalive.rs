//! Notices a peer that is connected and says nothing any more: stopped, hung, or behind a network that lost us.

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

/// Returns when the peer was asked and said nothing for too long.
pub(super) async fn watch(heard: &Heard, writer: &Writer, config: &Config) {
    loop {
        let before = heard.count();
        tokio::time::sleep(config.ping_interval()).await;
        if heard.count() != before {
            continue;
        }
        if writer.send(Frame::bare(Kind::Ping, 0), Urgency::Now).is_err() {
            return;
        }
        tokio::time::sleep(config.ping_timeout()).await;
        if heard.count() == before {
            return;
        }
    }
}
