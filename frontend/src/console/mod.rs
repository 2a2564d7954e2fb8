//! Operator's view of a frontend: a stream of frames, one per second, and of events.
//!
//! Reading order: [`Sums`] and [`Journal`] collect counts and events. In `frame` a moment is a reading of all of them, and two
//! moments make a frame. The [`Stream`] sends frames to watchers, along with rarely changing data. The [`Archive`] keeps the
//! [`Story`] of queries for inspection. The protocol is documented in `page/CONTRACT.md`.

mod archive;
mod frame;
mod journal;
mod story;
mod stream;
mod sums;

pub(crate) use archive::{Archive, KeptQuery, Wanted, kept_id, read_name};
pub(crate) use frame::{hundredths, reason_of};
pub(crate) use journal::{Happening, Journal, Kind, LogRate};
pub(crate) use story::{At, Step, Story};
pub(crate) use stream::{Stream, outcomes};
pub(crate) use sums::{Sums, Tail};
