//! What is learned from: rows, what the teacher says of them, and changed copies of both.

use parm_random::Random;
use serde::{Deserialize, Serialize};

use super::Teacher;
use crate::groups::BLANK;
use crate::loss::{Softening, soften};
use crate::{Array, Error};

/// Largest shift of images: no image is larger.
const MOST_SHIFT: usize = 8192;

/// Rows with what is known of each.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    /// The first dimension counts the rows.
    pub(crate) inputs: Array<f32>,
    /// The teacher's outputs, flat: as many values for each row.
    pub(crate) outputs: Array<f32>,
    /// Classes, where they are known.
    pub(crate) labels: Option<Vec<usize>>,
}

impl Set {
    /// Rows.
    pub(crate) fn len(&self) -> usize {
        self.inputs.shape()[0]
    }

    /// Values of one output.
    pub(crate) fn values(&self) -> usize {
        self.outputs.shape()[1]
    }

    /// Dimensions of one row.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.inputs.shape()[1..]
    }

    /// The given rows.
    pub(crate) fn select(&self, rows: &[usize]) -> Self {
        Self {
            inputs: self.inputs.rows(rows),
            outputs: self.outputs.rows(rows),
            labels: self.labels.as_ref().map(|labels| rows.iter().map(|&row| labels[row]).collect()),
        }
    }
}

/// How images are changed between epochs. What the teacher says is computed anew for each changed copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Augmentation {
    /// Pixels by which images are shifted at most, in each direction; what comes in is zero. Default 0.
    pub shift: usize,
    /// Whether half of the images are mirrored. Default false.
    pub flip: bool,
}

impl Augmentation {
    /// Whether anything is changed.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Rejects a shift that no image has.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.shift {
            0..=MOST_SHIFT => Ok(()),
            _ => Err(Error::Setting { message: format!("augment.shift is at most {MOST_SHIFT} pixels") }),
        }
    }
}

/// Changes images and asks the teacher again.
pub(crate) struct Augment<'a> {
    pub(crate) how: Augmentation,
    /// `None`: what is true of an image stays true of its copies, as with labels.
    pub(crate) teacher: Option<&'a dyn Teacher>,
}

/// What the networks are shown of a batch: rows, targets, and which of them each group has.
pub(crate) struct Augmented {
    pub(crate) inputs: Vec<f32>,
    pub(crate) targets: Vec<f32>,
    pub(crate) members: Vec<u32>,
}

impl Augment<'_> {
    /// Changed copies of the members of some groups.
    pub(crate) fn copies(
        &self,
        set: &Set,
        targets: &[f32],
        members: &[u32],
        random: &mut Random,
        softening: Option<Softening>,
    ) -> Result<Augmented, Error> {
        let [.., height, width] = *set.dims() else {
            return Err(Error::NotImages { dims: set.dims().into() });
        };
        let (row, values) = (set.inputs.data().len() / set.len(), targets.len() / set.len());
        let mut augmented = Augmented { inputs: Vec::new(), targets: Vec::new(), members: Vec::new() };
        let mut copies = 0;
        for &member in members {
            if member == BLANK {
                augmented.members.push(BLANK);
                continue;
            }
            let source = &set.inputs.data()[member as usize * row..][..row];
            let start = augmented.inputs.len();
            augmented.inputs.resize(start + row, 0.0);
            let change = Change::draw(self.how, random);
            for (from, to) in source
                .chunks_exact(height * width)
                .zip(augmented.inputs[start..].chunks_exact_mut(height * width))
            {
                change.apply(from, to, height, width);
            }
            augmented.targets.extend(&targets[member as usize * values..][..values]);
            augmented.members.push(copies);
            copies += 1;
        }
        if let Some(teacher) = &self.teacher {
            let shape: Vec<usize> = [copies as usize].into_iter().chain(set.dims().iter().copied()).collect();
            let rows = Array::new(shape, augmented.inputs.clone()).expect("whole rows");
            augmented.targets = teacher.predict(&rows)?.into_data();
            if let Some(softening) = softening {
                soften(&mut augmented.targets, values, softening);
            }
        }
        Ok(augmented)
    }
}

/// How one image is changed.
struct Change {
    down: isize,
    right: isize,
    mirrored: bool,
}

impl Change {
    fn draw(how: Augmentation, random: &mut Random) -> Self {
        let shift = how.shift as isize;
        let mut by = || random.below(2 * how.shift + 1) as isize - shift;
        Self { down: by(), right: by(), mirrored: how.flip && random.below(2) == 1 }
    }

    fn apply(&self, from: &[f32], to: &mut [f32], height: usize, width: usize) {
        for y in 0..height {
            let Some(source) = y.checked_add_signed(-self.down).filter(|y| *y < height) else { continue };
            for x in 0..width {
                let Some(column) = x.checked_add_signed(-self.right).filter(|x| *x < width) else { continue };
                let column = if self.mirrored { width - 1 - column } else { column };
                to[y * width + x] = from[source * width + column];
            }
        }
    }
}
