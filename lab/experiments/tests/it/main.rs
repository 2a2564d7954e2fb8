//! Experiments as a user runs them, and the contents of their reports.

mod repeatable;
