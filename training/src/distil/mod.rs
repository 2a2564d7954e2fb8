//! Networks that learn, from a coded group, what another model says of the group's members.
//!
//! This is how parity models are trained, and base models too: those are the case of one query to a group, with labels
//! in place of a teacher. Groups are encoded on the host by the very code that serves, so that training cannot see
//! anything else than serving will; sums of rows cost a small part of a step.

mod coder;
mod exam;
mod lesson;
mod samples;
mod split;
mod targets;
mod teacher;

pub(crate) use coder::Coder;
pub use exam::Marks;
pub(crate) use exam::{Exam, largest, score};
pub(crate) use lesson::{Lesson, LessonPlan};
pub use samples::Augmentation;
pub(crate) use samples::{Augment, Augmented, Set};
pub(crate) use split::Split;
pub(crate) use targets::{Aim, Targets};
pub use teacher::Teacher;
pub(crate) use teacher::predictions;
