//! Window over the latest yes-or-no results: one bit each, and the number of yes.

/// The latest results.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    bits: Vec<u64>,
    size: u32,
    /// The place of the next result.
    next: u32,
    seen: u32,
    yes: u32,
}

impl Window {
    pub(crate) fn new(size: u32) -> Self {
        let size = size.max(1);
        Self { bits: vec![0; size.div_ceil(64) as usize], size, next: 0, seen: 0, yes: 0 }
    }

    /// Resizes the window and keeps the latest results that fit.
    pub(crate) fn resize(&mut self, size: u32) {
        if size.max(1) == self.size {
            return;
        }
        let mut resized = Self::new(size);
        let from = self.seen.saturating_sub(resized.size);
        // Results are copied in order, the oldest first.
        let oldest = u64::from(self.next) + u64::from(self.size - self.seen);
        for back in from..self.seen {
            let at = (oldest + u64::from(back)) % u64::from(self.size);
            resized.note(self.bits[(at / 64) as usize] & 1 << (at % 64) != 0);
        }
        *self = resized;
    }

    pub(crate) fn note(&mut self, yes: bool) {
        let (word, bit) = (&mut self.bits[(self.next / 64) as usize], 1u64 << (self.next % 64));
        self.yes -= u32::from(*word & bit != 0);
        *word = if yes { *word | bit } else { *word & !bit };
        self.yes += u32::from(yes);
        self.seen = (self.seen + 1).min(self.size);
        self.next = (self.next + 1) % self.size;
    }

    /// Its capacity.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Its number of results.
    pub(crate) fn seen(&self) -> u32 {
        self.seen
    }

    /// Its number of yes.
    pub(crate) fn yes(&self) -> u32 {
        self.yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resize_keeps_the_latest_in_their_order() {
        let mut window = Window::new(100);
        (0..150).for_each(|number| window.note(number % 3 == 0));
        window.resize(200);
        assert_eq!((window.seen(), window.yes()), (100, 33));
        window.resize(10);
        // 140..150: 141, 144, 147.
        assert_eq!((window.seen(), window.yes()), (10, 3));
        window.note(false);
        window.note(false);
        assert_eq!(window.yes(), 2, "141 went");
    }

    #[test]
    fn the_old_make_room_for_the_new() {
        let mut window = Window::new(100);
        (0..70).for_each(|_| window.note(true));
        assert_eq!((window.seen(), window.yes()), (70, 70));
        (0..60).for_each(|_| window.note(false));
        assert_eq!((window.seen(), window.yes()), (100, 40));
        (0..40).for_each(|_| window.note(false));
        assert_eq!(window.yes(), 0);
    }
}
