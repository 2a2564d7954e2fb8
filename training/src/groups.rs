//! Draws the groups of every epoch.
//!
//! An epoch walks through random orders of all samples, as many as it needs, so that every sample is used equally
//! often; k consecutive ones are a group. So members and their slots are random. Some groups lose members, so that a
//! parity model learns blank slots. The draw depends only on the seed and the epoch, so a resumed run continues with
//! the same groups.

use parm_random::Random;

/// A blank slot.
pub(crate) const BLANK: u32 = u32::MAX;

/// Settings of the draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampling {
    /// Slots of a group.
    pub(crate) k: usize,
    /// Groups in an epoch.
    pub(crate) groups: usize,
    /// Share of groups that have blank slots.
    pub(crate) blanks: f32,
    /// Seed of the run.
    pub(crate) seed: u64,
}

/// The groups of one epoch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TrainingGroups {
    k: usize,
    /// k sample numbers per group, or [`BLANK`].
    members: Vec<u32>,
}

impl Sampling {
    /// The groups of an epoch over `samples` samples, of which there must be at least one.
    pub(crate) fn draw(&self, samples: usize, epoch: u64) -> TrainingGroups {
        let mut random = Random::named(self.seed, &format!("groups of epoch {epoch}"));
        let wanted = self.groups * self.k;
        let mut members = Vec::with_capacity(wanted + samples);
        while members.len() < wanted {
            let start = members.len();
            members.extend(0..samples as u32);
            random.shuffle(&mut members[start..]);
        }
        members.truncate(wanted);
        if self.k > 1 && self.blanks > 0.0 {
            let mut slots: Vec<usize> = (0..self.k).collect();
            for group in members.chunks_exact_mut(self.k) {
                if random.unit() < f64::from(self.blanks) {
                    let count = 1 + random.below(self.k - 1);
                    random.shuffle(&mut slots);
                    slots[..count].iter().for_each(|&slot| group[slot] = BLANK);
                }
            }
        }
        TrainingGroups { k: self.k, members }
    }
}

impl TrainingGroups {
    /// Each sample once, in random order; an incomplete group is left out.
    pub(crate) fn once(samples: usize, k: usize, seed: u64) -> Self {
        Sampling { k, groups: samples / k, blanks: 0.0, seed }.draw(samples, 0)
    }

    /// The number of groups.
    pub(crate) fn len(&self) -> usize {
        self.members.len() / self.k
    }

    /// The members of groups `from..to`, k per group.
    pub(crate) fn range(&self, from: usize, to: usize) -> &[u32] {
        &self.members[from * self.k..to.min(self.len()) * self.k]
    }

    /// The members of each group.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.members.chunks_exact(self.k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling() -> Sampling {
        Sampling { k: 3, groups: 40, blanks: 0.0, seed: 7 }
    }

    #[test]
    fn epoch_uses_every_sample_equally_often() {
        let mut seen = [0; 30];
        sampling().draw(30, 1).members.iter().for_each(|&member| seen[member as usize] += 1);
        assert_eq!(seen, [4; 30]);
    }

    #[test]
    fn draw_depends_on_the_epoch() {
        assert_eq!(sampling().draw(30, 1), sampling().draw(30, 1));
        assert_ne!(sampling().draw(30, 1), sampling().draw(30, 2));
        assert_ne!(sampling().draw(30, 1), Sampling { seed: 8, ..sampling() }.draw(30, 1));
    }

    #[test]
    fn blanks_leave_a_member_in_every_group() {
        let groups = Sampling { blanks: 0.5, ..sampling() }.draw(30, 1);
        let blanks = |group: &[u32]| group.iter().filter(|&&member| member == BLANK).count();
        assert!(groups.iter().all(|group| blanks(group) < 3));
        let touched = groups.iter().filter(|group| blanks(group) > 0).count();
        assert!((5..36).contains(&touched), "{touched} of 40");
    }
}
