//! Runs the fuzz targets that have a whole frontend.

use std::path::Path;

// The targets are public for the fuzzer.
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/frontends/mod.rs"]
mod frontends;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/mutations.rs"]
mod mutations;

#[test]
fn targets_survive_seeds_and_mutations() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    mutations::survive(&seeds, &frontends::ALL);
}
