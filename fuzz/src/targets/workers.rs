//! Any text as a workers file: a line is an address of a server, a name that stands for several, or nothing.

use parm_frontend::discovery::{Connect, Name, Wire};

/// One run.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let wire = Wire::default();
    for line in text.lines() {
        let line = line.split_once('#').map_or(line, |(before, _)| before).trim();
        let _ = wire.check(line);
        if let Some(Ok(name)) = Name::read(line) {
            assert_eq!(Name::read(&name.to_string()), Some(Ok(name)));
        }
    }
}
