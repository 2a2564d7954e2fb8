//! Shows what a long command does: a bar, a line or a page that is redrawn on a terminal; lines at intervals elsewhere.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parm_lab::simulator::Progress;

/// Time between two lines of a page without a terminal.
const PAGE_EVERY: Duration = Duration::from_secs(5);

/// The least time between two lines about the same step.
const STEP_EVERY: Duration = Duration::from_secs(30);

/// Progress on stderr. Without a terminal only [`Bar::tell`] and [`Bar::step`] print.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
    steps: Mutex<Steps>,
}

impl Bar {
    /// Makes a bar for `count` things.
    pub fn new(count: u64, things: &str) -> Self {
        let style = format!("{{wide_bar}} {{percent:>3}} % of {{human_len}} {things}, {{eta}} left");
        Self::styled(ProgressBar::new(count), &style)
    }

    /// Makes a counter of things whose total is unknown.
    pub fn spinner(things: &str) -> Self {
        let style = format!("{{spinner}} {{human_pos}} {things} in {{elapsed}}");
        Self::styled(ProgressBar::new_spinner(), &style)
    }

    /// Makes a line with the present step, which moves although the step takes long.
    pub fn steps() -> Self {
        let bar = Self::styled(ProgressBar::new_spinner(), "{spinner} {msg}");
        bar.bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }

    fn styled(bar: ProgressBar, template: &str) -> Self {
        let bar = match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        Self { bar, steps: Mutex::default() }
    }

    /// Shows a step, or the progress within it. A log has each step once, and its progress every half minute.
    pub fn step(&self, what: &str, is_new: bool) {
        self.bar.set_message(what.to_owned());
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if self.bar.is_hidden() && steps.admit(what, is_new, Instant::now()) {
            eprintln!("{what}");
        }
    }

    /// Prints a line, which stays.
    pub fn tell(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Continues at `position` of `count` things.
    #[cfg(feature = "train")]
    pub fn resume(&self, position: u64, count: u64) {
        self.bar.set_length(count);
        self.bar.set_position(position);
        self.bar.reset_eta();
    }
}

/// Removes the bar from the terminal.
impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for Bar {
    fn advanced(&self, by: u64) {
        self.bar.inc(by);
    }
}

/// Chooses the lines for a log.
#[derive(Debug, Default)]
struct Steps {
    step: String,
    shown: Option<Instant>,
}

impl Steps {
    fn admit(&mut self, what: &str, is_step: bool, now: Instant) -> bool {
        let is_due = self.shown.is_none_or(|shown| now.duration_since(shown) >= STEP_EVERY);
        let is_new = is_step && self.step != what;
        if is_step {
            self.step = what.into();
        }
        if is_new || is_due {
            self.shown = Some(now);
        }
        is_new || is_due
    }
}

/// A text that is redrawn in place on a terminal; elsewhere a line every few seconds.
#[derive(Debug)]
pub struct Page {
    bar: Option<ProgressBar>,
    /// When the next line is due, without a terminal.
    next: Instant,
}

impl Page {
    /// A page on stdout.
    pub fn of_stdout() -> Self {
        Self::drawn(std::io::stdout().is_terminal().then(ProgressDrawTarget::stdout))
    }

    /// A page on stderr.
    pub fn of_stderr() -> Self {
        Self::drawn(std::io::stderr().is_terminal().then(ProgressDrawTarget::stderr))
    }

    fn drawn(target: Option<ProgressDrawTarget>) -> Self {
        let style =
            ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = target.map(|target| ProgressBar::with_draw_target(None, target).with_style(style));
        Self { bar, next: Instant::now() }
    }

    /// Whether something can be shown now.
    pub fn is_due(&self) -> bool {
        self.bar.is_some() || Instant::now() >= self.next
    }

    /// Shows a text. Returns the line to print instead if nothing can be redrawn.
    pub fn show(&mut self, page: impl FnOnce() -> String, line: impl FnOnce() -> String) -> Option<String> {
        if let Some(bar) = &self.bar {
            bar.set_message(page());
            return None;
        }
        self.next = Instant::now() + PAGE_EVERY;
        Some(line())
    }

    /// Removes the text from the terminal.
    pub fn clear(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_shows_each_step_once_and_progress_every_half_minute() {
        let (mut steps, start) = (Steps::default(), Instant::now());
        let mut at =
            |what, is_step, seconds| steps.admit(what, is_step, start + Duration::from_secs(seconds));
        assert!(at("rewriting", true, 0));
        assert!(!at("rewriting", true, 1), "the same step");
        assert!(at("cutting: a", true, 1) && at("cutting: b", true, 1));
        let shown = (2..=62).filter(|second| at("layer 1 of 50", false, *second)).count();
        assert_eq!(shown, 2, "a minute of progress");
    }
}
