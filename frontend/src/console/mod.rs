//! What people who run a frontend see: a stream of frames, one a second, and what happened.
//!
//! In reading order: what is counted along the way ([`Sums`], in `histogram` by time) and noted ([`Journal`]); a
//! [`Moment`](moment::Moment) is all of it read at once, two of them make a `frame`; the [`Stream`] sends frames to whoever
//! watches, beside what seldom changes (`hello`, `names`). A query's [`Story`] is kept in the [`Archive`], if people may ask
//! about it. The whole protocol is in `page/CONTRACT.md`.

mod archive;
mod frame;
mod hello;
mod histogram;
mod journal;
pub(crate) mod moment;
mod names;
mod story;
mod stream;
mod sums;
mod words;

pub(crate) use archive::{Archive, KeptQuery, Wanted, read_name};
pub(crate) use journal::{Happening, Journal, Kind};
pub(crate) use story::{At, Step, Story};
pub(crate) use stream::Stream;
pub(crate) use sums::Sums;
