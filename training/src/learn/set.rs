//! Rows with the teacher's answers, and augmented copies of both.

use parm_random::Random;
use serde::{Deserialize, Serialize};

use super::{Softening, Teacher, soften};
use crate::groups::{BLANK, Groups};
use crate::{Array, Error};

/// Maximum shift of images: no image is larger.
const MOST_SHIFT: usize = 8192;

/// Rows with their answers.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    /// The first dimension counts the rows.
    pub(crate) inputs: Array<f32>,
    /// The teacher's outputs, flat: the same number of values per row.
    pub(crate) outputs: Array<f32>,
    /// Classes, if known.
    pub(crate) labels: Option<Vec<usize>>,
}

impl Set {
    /// The number of rows.
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

    /// The answer to a row.
    pub(crate) fn output(&self, row: usize) -> &[f32] {
        &self.outputs.data()[row * self.values()..][..self.values()]
    }

    /// Splits off `held_out` random rows, at most a sixth: the rows to learn from, and the others.
    pub(crate) fn split(&self, held_out: usize, seed: u64) -> (Self, Self) {
        let mut rows: Vec<usize> = (0..self.len()).collect();
        Random::named(seed, "rows held out").shuffle(&mut rows);
        let held_out = rows.split_off(self.len() - held_out.min(self.len() / 6));
        (self.select(&rows), self.select(&held_out))
    }

    fn select(&self, rows: &[usize]) -> Self {
        Self {
            inputs: self.inputs.rows(rows),
            outputs: self.outputs.rows(rows),
            labels: self.labels.as_ref().map(|labels| rows.iter().map(|&row| labels[row]).collect()),
        }
    }
}

/// Changes of images between epochs. The teacher answers each changed copy anew; without a teacher, it keeps its label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Augmentation {
    /// Maximum shift of images in pixels, in each direction; uncovered pixels become zero. Default 0.
    pub shift: usize,
    /// Whether half of the images are mirrored. Default false.
    pub flip: bool,
}

impl Augmentation {
    /// Whether images stay unchanged.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Rejects a shift that is larger than any image.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.shift {
            0..=MOST_SHIFT => Ok(()),
            _ => {
                Err(Error::Setting { message: format!("augment.shift must be at most {MOST_SHIFT} pixels") })
            }
        }
    }
}

/// Changes images and runs the teacher on the copies.
pub(crate) struct Augment<'a> {
    pub(crate) how: Augmentation,
    /// `None`: copies keep the answer of the original, as with labels.
    pub(crate) teacher: Option<&'a dyn Teacher>,
}

/// The training data of a batch.
pub(crate) struct Augmented {
    pub(crate) inputs: Array<f32>,
    /// The targets, row by row.
    pub(crate) targets: Vec<f32>,
    pub(crate) groups: Groups,
}

impl Augment<'_> {
    /// Changed copies of the members of some groups.
    pub(crate) fn copies(
        &self,
        set: &Set,
        targets: &[f32],
        groups: &Groups,
        random: &mut Random,
        softening: Option<Softening>,
    ) -> Result<Augmented, Error> {
        let [.., height, width] = *set.dims() else {
            return Err(Error::NotImages { dims: set.dims().into() });
        };
        let (row, values) = (set.inputs.data().len() / set.len(), targets.len() / set.len());
        let (mut inputs, mut copied, mut members, mut copies) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for &member in groups.members() {
            if member == BLANK {
                members.push(BLANK);
                continue;
            }
            let source = &set.inputs.data()[member * row..][..row];
            let start = inputs.len();
            inputs.resize(start + row, 0.0);
            let change = Change::draw(self.how, random);
            let planes = source.chunks_exact(height * width);
            let planes = planes.zip(inputs[start..].chunks_exact_mut(height * width));
            planes.for_each(|(from, to)| change.apply(from, to, height, width));
            copied.extend(&targets[member * values..][..values]);
            members.push(copies);
            copies += 1;
        }
        let shape: Vec<usize> = [copies].into_iter().chain(set.dims().iter().copied()).collect();
        let inputs = Array::new(shape, inputs).expect("whole rows");
        if let Some(teacher) = &self.teacher {
            copied = teacher.predict(&inputs)?.into_data();
            if let Some(softening) = softening {
                soften(&mut copied, values, softening);
            }
        }
        Ok(Augmented { inputs, targets: copied, groups: Groups::of(groups.k(), members) })
    }
}

/// The change of one image.
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
