//! Ended coding groups for the console: the last few of each pool since the last reading.
//!
//! Groups are not kept after their end, so this is recorded only while the console watches.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::api::EndedGroup;

/// Most groups of a pool that are kept until the next reading.
const KEPT: usize = 16;

/// A pool's groups since the last reading.
#[derive(Debug, Default)]
pub(crate) struct Chronicle {
    ended: VecDeque<EndedGroup>,
    made: SmallVec<[(u8, u32); 2]>,
}

impl Chronicle {
    /// Notes an encoded group.
    pub(crate) fn made(&mut self, k: u8) {
        match self.made.iter_mut().find(|(of, _)| *of == k) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.made.push((k, 1)),
        }
    }

    /// The ended groups, and the number of encoded groups by size. Resets both.
    pub(crate) fn take(&mut self) -> (Vec<EndedGroup>, Vec<(u8, u32)>) {
        let mut made = std::mem::take(&mut self.made).into_vec();
        made.sort_unstable();
        (std::mem::take(&mut self.ended).into(), made)
    }

    /// Notes an ended group.
    pub(crate) fn ended(&mut self, ended: EndedGroup) {
        if self.ended.len() >= KEPT {
            self.ended.pop_front();
        }
        self.ended.push_back(ended);
    }
}
