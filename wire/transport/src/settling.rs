//! What is looked at again and again, and believed once two looks in a row saw it: who writes a file may empty it first, or
//! write one file after another, and what a look finds in between is nothing that anybody meant.

/// What is believed of something, and what the last look saw.
#[derive(Debug)]
pub struct Settling<T> {
    believed: Option<T>,
    last: Option<T>,
}

impl<T> Default for Settling<T> {
    fn default() -> Self {
        Self { believed: None, last: None }
    }
}

impl<T: Clone + PartialEq> Settling<T> {
    /// Takes in what a look saw; returns whether that is believed from now on and was not before. The first look is
    /// believed at once: there is nothing that it could replace.
    pub fn look(&mut self, seen: T) -> bool {
        let holds = self.believed.is_none() || self.last.as_ref() == Some(&seen);
        let changed = holds && self.believed.as_ref() != Some(&seen);
        if changed {
            self.believed = Some(seen.clone());
        }
        self.last = Some(seen);
        changed
    }

    /// Whether nothing was seen so far.
    pub fn is_new(&self) -> bool {
        self.last.is_none()
    }

    /// Believes something that was not looked at.
    pub fn believe(&mut self, known: T) {
        self.believed = Some(known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_believed_at_its_second_look_and_once() {
        let mut settling = Settling::default();
        let looks =
            [('a', true), ('a', false), ('b', false), ('c', false), ('c', true), ('c', false), ('a', false)];
        for (seen, expected) in looks {
            assert_eq!(settling.look(seen), expected, "{seen}, {settling:?}");
        }
    }
}
