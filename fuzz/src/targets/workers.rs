//! Any text as a workers file: each line is an address with its place, a name that stands for several, or empty.

use parm_frontend::discovery::kubernetes::Service;
use parm_frontend::discovery::{Connect, Listed, Name, Wire};

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let wire = Wire::default();
    for line in text.lines() {
        let Some(Ok(listed)) = Listed::read(line) else { continue };
        assert_eq!(listed.url, listed.url.trim());
        let line = listed.url.as_str();
        let _ = wire.check(line);
        if let Some(Ok(service)) = Service::read(line) {
            assert_eq!(Service::read(&service.to_string()), Some(Ok(service)));
        }
        if let Some(Ok(name)) = Name::read(line) {
            assert_eq!(Name::read(&name.to_string()), Some(Ok(name)));
        }
    }
}
