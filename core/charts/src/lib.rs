//! Scales, axes and lines as SVG text, for the pictures in reports.
//!
//! A [`Scale`] maps values to pixels and finds round ticks, a [`Frame`] is an area with two scales and their axes,
//! and a [`document()`] is a standalone file. Pictures are assembled as text, so they need no fonts and no plotting
//! library. Colours are the classes `c0` to `c9`: a page defines them in its style sheet, a document brings its own.

mod document;
mod frame;
mod scale;

pub use document::{COLOURS, class, document, text};
pub use frame::{Area, Frame, WIDTH};
pub use scale::{Scale, tick};
