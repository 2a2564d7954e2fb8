//! Data sets from the files that people have: idx (MNIST and its family), CIFAR's binary batches, what numpy saved,
//! CSV, folders of images, annotated boxes, recordings, files of any kind.
//!
//! A [`Source`] says in one line of text which files and how; it reads [`Samples`]. Readers check everything that a
//! file says about itself against its length before they believe it, within a [`Limit`], and their errors name the
//! file and the line. No reader downloads anything: [`known`] names the command that fetches a set, and checks sums.

mod bytes;
mod cifar;
mod csv;
mod error;
mod file;
mod folder;
mod image;
pub mod known;
mod normal;
mod npz;
mod options;
mod part;
mod parts;
mod samples;
mod save;
mod sequence;
mod source;
mod spectrum;
mod voc;
mod wav;

pub use cifar::Cifar;
pub use error::Unusable;
pub use file::{Limit, md5};
pub use normal::{fit, normalise};
pub use part::part_in_time;
pub use parts::Parts;
pub use samples::Samples;
pub use source::{KINDS, Source};
