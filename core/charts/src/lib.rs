//! Scales, axes and lines as SVG text: the little that the pictures of reports need.
//!
//! A [`Scale`] brings values to pixels and knows round ones, a [`Frame`] is two of them around an area with its axes, a
//! [`document()`] is a file of its own. Pictures are text that is put together: they need no fonts, no devices and no library,
//! and look right wherever they are opened. Colours are classes, `c0` to `c9`: within a page its style sheet says what they
//! are, in a document ours does.

mod document;
mod frame;
mod scale;

pub use document::{COLOURS, class, document, text};
pub use frame::{Area, Frame, WIDTH};
pub use scale::{Scale, tick};
