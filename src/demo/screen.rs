//! A terminal whose last lines are drawn again and again; elsewhere, a line now and then.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::view::{Ink, Scene};

/// Between two lines where there is no terminal.
const LINES_EVERY: Duration = Duration::from_secs(5);

/// Narrower terminals get lines.
const LEAST_WIDTH: usize = 80;

/// Where the demonstration is watched.
pub enum Screen {
    /// The lines that were drawn last are drawn over.
    Terminal { ink: Ink, width: usize, drawn: usize },
    /// Lines follow each other.
    Lines { next: Instant },
    /// Nobody watches: only the result is wanted.
    Silent,
}

impl Screen {
    /// What stdout is.
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

    /// Characters in a line.
    pub fn width(&self) -> usize {
        match self {
            Screen::Terminal { width, .. } => *width,
            Screen::Lines { .. } | Screen::Silent => LEAST_WIDTH,
        }
    }

    /// Shows a moment.
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

    /// Shows the end, which stays.
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
