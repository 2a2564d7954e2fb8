//! Shows progress on stderr, if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use parm_simulator::Progress;

/// A progress bar, or a growing number if the total is unknown.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// Makes a bar for `count` things.
    pub fn new(count: u64, things: &str) -> Self {
        let style = format!("{{wide_bar}} {{percent:>3}} % of {{human_len}} {things}, {{eta}} left");
        Self(styled(ProgressBar::new(count), &style))
    }

    /// Makes a counter of things whose total is unknown.
    pub fn spinner(things: &str) -> Self {
        Self(styled(
            ProgressBar::new_spinner(),
            &format!("{{spinner}} {{human_pos}} {things} in {{elapsed}}"),
        ))
    }

    /// Removes the bar from the terminal.
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
