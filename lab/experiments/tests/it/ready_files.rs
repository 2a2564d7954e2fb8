//! The experiment files of this folder.

use std::fs;
use std::path::Path;

use parm_experiments::{Config, Experiment};

#[test]
fn every_ready_file_is_a_valid_experiment() {
    let mut checked = 0;
    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap() {
        let path = file.unwrap().path();
        let is_experiment =
            path.extension().is_some_and(|end| end == "toml") && !path.ends_with("Cargo.toml");
        if is_experiment {
            let text = fs::read_to_string(&path).unwrap();
            let experiment = Config::parse(&text).and_then(Experiment::new);
            assert!(experiment.is_ok(), "{}: {:?}", path.display(), experiment.err());
            checked += 1;
        }
    }
    assert!(checked > 10, "{checked} files");
}
