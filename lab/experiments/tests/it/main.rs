//! Experiments as a user runs them, their reports, and the files that are ready to run.

mod grid;
mod raw;
mod ready_files;
mod repeatable;
