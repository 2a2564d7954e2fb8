//! Scratch: an experiment file in virtual time.
use parm_experiments::{Config, Experiment};
use parm_simulator::Quiet;
use std::io::Write;
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let mut text = std::fs::read_to_string(&args[1])?;
    for change in &args[2..] {
        let (name, value) = change.split_once('=').ok_or("NAME=VALUE")?;
        let lines = text
            .lines()
            .filter(|line| !line.starts_with(&format!("{name} =")))
            .collect::<Vec<_>>()
            .join("\n");
        text = format!("{name} = {value}\n{lines}");
    }
    let report = Experiment::new(Config::parse(&text)?)?.run(2, &Quiet)?;
    writeln!(std::io::stdout(), "{report}")?;
    Ok(())
}
