//! The sizes of a graph's values, as the engine finds them.

use std::collections::HashMap;

use parm_parity_models::onnx::rewrite::Draft;

use super::{probe, types};
use crate::Error;
use crate::rows::Rows;
use crate::workshop::Workshop;

/// One size of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// The same whatever comes in.
    Fixed(usize),
    /// So many times the rows that come in.
    Rows(usize),
}

/// Sizes of values by name. Values of which they are not known are not in it.
#[derive(Debug, Default)]
pub(crate) struct Survey(HashMap<String, Vec<Size>>);

impl Survey {
    /// Runs the graph on two and on three rows. A graph whose rows vary in size, or that the engine does not run with all of
    /// its values as outputs, is not surveyed: then nothing is known, and what needs to know does nothing.
    pub(crate) fn of(workshop: &Workshop, draft: &Draft, rows: &Rows) -> Result<Self, Error> {
        if !rows.is_fixed() || rows.len() < 3 {
            return Ok(Self::default());
        }
        let types = types(draft);
        let made = draft.nodes.iter().flat_map(|node| &node.output);
        let values: Vec<String> = made.filter(|name| types.contains_key(*name)).cloned().collect();
        let Ok(mut probed) =
            probe(draft, &values, &types).and_then(|model| workshop.load("survey", model.bytes()))
        else {
            return Ok(Self::default());
        };
        let mut asked = |count: usize| probed.run(rows, 0..count);
        let (Ok(two), Ok(three)) = (asked(2), asked(3)) else { return Ok(Self::default()) };
        let sizes = values.into_iter().zip(two.iter().zip(&three)).filter_map(|(name, (two, three))| {
            let pairs = two.shape().iter().zip(three.shape());
            let sizes = pairs.map(|(&two, &three)| size(two, three)).collect::<Option<Vec<Size>>>()?;
            (two.shape().len() == three.shape().len()).then_some((name, sizes))
        });
        let mut survey: HashMap<String, Vec<Size>> = sizes.collect();
        survey.extend(rows.sizes().map(|(name, row)| {
            let row = row.iter().map(|&size| Size::Fixed(size));
            (name.to_owned(), std::iter::once(Size::Rows(1)).chain(row).collect())
        }));
        let fixed = |dims: &[usize]| dims.iter().map(|&size| Size::Fixed(size)).collect();
        survey.extend(draft.constants.iter().map(|(name, tensor)| (name.clone(), fixed(tensor.dims()))));
        Ok(Self(survey))
    }

    /// The sizes of a value, where they are known.
    pub(crate) fn sizes(&self, value: &str) -> Option<&[Size]> {
        self.0.get(value).map(Vec::as_slice)
    }

    /// What two values have when they are brought together value by value.
    pub(crate) fn joined(&self, a: &str, b: &str) -> Option<Vec<Size>> {
        let (a, b) = (self.sizes(a)?, self.sizes(b)?);
        let rank = a.len().max(b.len());
        let one = Size::Fixed(1);
        let at = |sizes: &[Size], place: usize| match (place + sizes.len()).checked_sub(rank) {
            Some(place) => sizes[place],
            None => one,
        };
        let join = |place| match (at(a, place), at(b, place)) {
            (a, b) if a == b => Some(a),
            (a, b) if a == one => Some(b),
            (a, b) if b == one => Some(a),
            _ => None,
        };
        (0..rank).map(join).collect()
    }
}

fn size(two: usize, three: usize) -> Option<Size> {
    match (two, three) {
        (a, b) if a == b => Some(Size::Fixed(a)),
        (a, b) if a.is_multiple_of(2) && a / 2 * 3 == b => Some(Size::Rows(a / 2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_with_the_rows_is_told_from_what_does_not() {
        assert_eq!(size(5, 5), Some(Size::Fixed(5)));
        assert_eq!(size(8, 12), Some(Size::Rows(4)));
        assert_eq!(size(3, 4), None);
        assert_eq!(size(2, 9), None);
    }

    #[test]
    fn sizes_are_joined_as_operators_broadcast() {
        let survey = Survey(HashMap::from([
            ("x".to_owned(), vec![Size::Rows(1), Size::Fixed(5), Size::Fixed(1)]),
            ("y".to_owned(), vec![Size::Fixed(1), Size::Fixed(7)]),
            ("z".to_owned(), vec![Size::Fixed(4)]),
        ]));
        let joined = vec![Size::Rows(1), Size::Fixed(5), Size::Fixed(7)];
        assert_eq!(survey.joined("x", "y"), Some(joined));
        assert_eq!(survey.joined("y", "z"), None);
        assert_eq!(survey.joined("x", "unknown"), None);
    }
}
