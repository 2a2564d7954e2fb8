//! What is generated or committed is what the code makes and takes.

mod generated;
mod seeds;
