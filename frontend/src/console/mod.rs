//! Operator's view of a frontend: a stream of frames, one per second, and of events.
//!
//! Reading order: [`Sums`] and [`Journal`] collect counts (in `histogram` by time) and events. A
//! [`Moment`](moment::Moment) is a reading of all of them, and two moments make a `frame`. The [`Stream`] sends frames
//! to watchers, along with rarely changing data (`hello`, `names`). The [`Archive`] keeps the [`Story`] of queries for
//! inspection. The protocol is documented in `page/CONTRACT.md`.

mod archive;
mod frame;
mod hello;
mod histogram;
mod journal;
mod log_rate;
pub(crate) mod moment;
mod names;
mod objective;
mod story;
mod stream;
mod sums;
mod words;

pub(crate) use archive::{Archive, KeptQuery, Wanted, kept_id, read_name};
pub(crate) use frame::reason_of;
pub(crate) use hello::outcomes;
pub(crate) use journal::{Happening, Journal, Kind};
pub(crate) use log_rate::LogRate;
pub(crate) use objective::Tail;
pub(crate) use story::{At, Step, Story};
pub(crate) use stream::Stream;
pub(crate) use sums::Sums;
