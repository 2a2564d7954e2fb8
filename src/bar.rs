//! Progress on stderr, which hides itself where that is no terminal.

use indicatif::{ProgressBar, ProgressStyle};
use parm_simulator::Progress;

/// A bar that fills, or a number that grows where nobody knows how far.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar of so many things.
    pub fn new(count: u64, things: &str) -> Self {
        let style = format!("{{wide_bar}} {{percent:>3}} % of {{human_len}} {things}, {{eta}} left");
        Self(styled(ProgressBar::new(count), &style))
    }

    /// A number of things.
    pub fn spinner(things: &str) -> Self {
        Self(styled(
            ProgressBar::new_spinner(),
            &format!("{{spinner}} {{human_pos}} {things} in {{elapsed}}"),
        ))
    }

    /// Takes it away.
    pub fn done(&self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Bar {
    fn advanced(&self, by: u64) {
        self.0.inc(by);
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
