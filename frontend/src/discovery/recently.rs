//! An answer that holds for a moment, so that thousands of equal questions cost one look.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a yes holds.
const HOLDS: Duration = Duration::from_millis(10);

/// Remembers for a moment that a condition held. A no is not remembered, because the next question may need a yes at once.
#[derive(Default)]
pub(super) struct Recently(Mutex<Option<Instant>>);

impl Recently {
    /// Whether the condition held a moment ago or, by a look, holds now.
    pub(super) fn or_now(&self, look: impl FnOnce() -> bool) -> bool {
        let mut last = self.0.lock();
        if last.is_some_and(|at| at.elapsed() < HOLDS) {
            return true;
        }
        let holds = look();
        *last = holds.then(Instant::now);
        holds
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn yes_holds_for_a_moment_and_a_no_does_not() {
        let (recently, looks) = (Recently::default(), Cell::new(0));
        let ask = |answer: bool| {
            recently.or_now(|| {
                looks.set(looks.get() + 1);
                answer
            })
        };
        assert_eq!([ask(false), ask(false), ask(true)], [false, false, true]);
        assert_eq!(looks.get(), 3);
        assert!(ask(false) && looks.get() == 3, "a second look so soon");
        tokio::time::advance(HOLDS).await;
        assert!(!ask(false));
    }
}
