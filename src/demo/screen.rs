//! Redraws the last lines of a terminal; without one, prints a line every few seconds.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::view::{Ink, Scene};

/// Time between two lines without a terminal.
const LINES_EVERY: Duration = Duration::from_secs(5);

/// Narrower terminals get single lines.
const LEAST_WIDTH: usize = 80;

/// The output of the demo while it runs.
pub enum Screen {
    /// Overwrites the lines of the previous picture.
    Terminal { ink: Ink, width: usize, drawn: usize },
    /// Prints single lines.
    Lines { next: Instant },
    /// Prints only the result.
    Silent,
}

impl Screen {
    /// Returns the kind of output that suits stdout.
    pub fn of_stdout() -> Self {
        let stdout = io::stdout();
        let size = rustix::termios::tcgetwinsize(&stdout).map(|size| (size.ws_row, usize::from(size.ws_col)));
        match size {
            Ok((20.., width)) if stdout.is_terminal() && width >= LEAST_WIDTH => {
                Screen::Terminal { ink: ink(), width, drawn: 0 }
            }
            _ => Screen::Lines { next: Instant::now() },
        }
    }

    /// Returns the number of characters in a line.
    pub fn width(&self) -> usize {
        match self {
            Screen::Terminal { width, .. } => *width,
            Screen::Lines { .. } | Screen::Silent => LEAST_WIDTH,
        }
    }

    /// Shows a picture.
    pub fn show(&mut self, scene: &Scene<'_>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self {
            Screen::Terminal { ink, drawn, .. } => {
                let lines = scene.lines(*ink);
                if *drawn == 0 {
                    write!(out, "{HIDE_CURSOR}")?;
                } else {
                    write!(out, "\x1b[{drawn}A")?;
                }
                for line in &lines {
                    writeln!(out, "\r\x1b[2K{line}")?;
                }
                *drawn = lines.len();
            }
            Screen::Lines { next } => {
                if Instant::now() < *next {
                    return Ok(());
                }
                *next += LINES_EVERY;
                writeln!(out, "{}", scene.line())?;
            }
            Screen::Silent => {}
        }
        out.flush()
    }

    /// Shows the last picture, which stays.
    pub fn finish(&mut self, scene: &Scene<'_>) -> io::Result<()> {
        match self {
            Screen::Terminal { .. } => self.show(scene),
            Screen::Lines { .. } => {
                let mut out = io::stdout().lock();
                scene.table(Ink::Plain).iter().try_for_each(|line| writeln!(out, "{line}"))
            }
            Screen::Silent => Ok(()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Screen::Terminal { drawn: 1.., .. } = self {
            let _ = write!(io::stdout(), "{SHOW_CURSOR}");
        }
    }
}

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";

fn ink() -> Ink {
    if crate::environment::no_color() { Ink::Plain } else { Ink::Coloured }
}
