//! Data sets from common file formats: idx (MNIST), npy, CSV, bytes of files. `parm train` itself reads `capture:`.
//!
//! A [`Source`] describes in one line of text which files to read and how; it reads [`Samples`]. Readers check sizes
//! in a file against its length before they use them, within a [`Limit`]. Errors of one file name it, and the line of a table.
//! `training/convert.py` makes npy files from other formats.

mod bytes;
mod csv;
mod error;
mod part;
mod parts;
mod samples;
mod source;

pub use error::Unusable;

pub use part::part_in_time;
pub use parts::Parts;
pub use samples::{Samples, normalise};
pub use source::{KINDS, Limit, Source};
