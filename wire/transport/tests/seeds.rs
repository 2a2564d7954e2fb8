//! Decodes every seed of the fuzzer of frames as the kind in its name.

use std::fs;
use std::path::Path;

#[test]
fn every_frame_seed_decodes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/frames");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(parm_transport::frames::survives(&fs::read(&path).unwrap().into()), [name.as_str()]);
        seen += 1;
    }
    assert!(seen > 0, "found no seeds of frames");
}
