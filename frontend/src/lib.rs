//! The dispatcher without I/O, its tokio driver, discovery, admin and metrics.

pub mod dispatch;
