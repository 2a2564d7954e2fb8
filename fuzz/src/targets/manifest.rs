//! Any text as a bundle's `parm.toml`.

use std::path::Path;

use parm_parity_models::bundle::Manifest;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let path = Path::new("parm.toml");
    let Ok(manifest) = Manifest::parse(text, path) else { return };
    let written = manifest.to_toml();
    let back = Manifest::parse(&written, path).expect("what we write can be read");
    assert_eq!(back.to_toml(), written);
    let _ = (manifest.cheapest(), manifest.check());
}
