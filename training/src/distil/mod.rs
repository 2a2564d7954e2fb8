//! Distillation: networks learn, from a coded group, another model's answers to the group's members.
//!
//! Parity models are trained this way. Base models are too: as groups of one query, with labels instead of a teacher.
//! Groups are encoded on the host by the code that serves, so training and serving cannot differ; sums of rows are a
//! small part of a step.

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
