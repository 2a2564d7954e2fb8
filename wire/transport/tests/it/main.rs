//! Compares generated and committed files with the code.

mod generated;
mod seeds;
