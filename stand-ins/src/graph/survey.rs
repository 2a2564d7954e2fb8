//! Survey: the sizes of a graph's values, measured by running it.

use std::collections::HashMap;

use parm_parity_models::onnx::rewrite::Draft;

use super::{probe, types};
use crate::Error;
use crate::rows::Rows;
use crate::workshop::Workshop;

/// One size of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// The same for every input.
    Fixed(usize),
    /// A multiple of the number of rows.
    Rows(usize),
}

/// The sizes of values in one run, by name.
pub(crate) type Look = HashMap<String, Vec<usize>>;

/// Sizes of values by name. Values of unknown size are missing.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Sizes for every input. Empty if the sizes of rows vary.
    sizes: HashMap<String, Vec<Size>>,
    /// The sizes by run: for different numbers of rows, and for shorter rows if their sizes vary.
    looks: Vec<Look>,
}

impl Survey {
    /// Runs the graph on two and on three rows, or on one if it takes one at a time, and also on shorter rows if
    /// their sizes vary. If the engine cannot run the graph with all values as outputs, the survey is empty, and
    /// rewrites that need sizes are skipped.
    pub(crate) fn of(workshop: &Workshop, draft: &Draft, rows: &Rows) -> Result<Self, Error> {
        if rows.len() < 3 {
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
        let mut look = |rows: &Rows, count: usize| -> Option<Look> {
            let outputs = probed.run(rows, 0..count).ok()?;
            let mut look: Look =
                values.iter().cloned().zip(outputs.iter().map(|output| output.shape().to_vec())).collect();
            look.extend(rows.sizes().map(|(name, row)| {
                (name.to_owned(), std::iter::once(count).chain(row.iter().copied()).collect())
            }));
            look.extend(draft.constants.iter().map(|(name, tensor)| (name.clone(), tensor.dims().to_vec())));
            Some(look)
        };
        let counts: &[usize] = if rows.is_batched() { &[2, 3] } else { &[1] };
        let looks: Option<Vec<Look>> = counts.iter().map(|&count| look(rows, count)).collect();
        let Some(mut looks) = looks else { return Ok(Self::default()) };
        let sizes = match &looks[..] {
            [two, three] if rows.is_fixed() => compared(two, three, draft),
            _ => HashMap::new(),
        };
        // Some graphs fail for other sizes, whatever they declare.
        looks.extend(rows.halved()?.and_then(|shorter| look(&shorter, counts[0])));
        Ok(Self { sizes, looks })
    }

    /// The sizes of a value, if known.
    pub(crate) fn sizes(&self, value: &str) -> Option<&[Size]> {
        self.sizes.get(value).map(Vec::as_slice)
    }

    /// The sizes by run: the first run has the fewest rows of full size.
    pub(crate) fn looks(&self) -> &[Look] {
        &self.looks
    }

    /// The sizes of the broadcast result of two values.
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

/// Derives the sizes for any number of rows from runs on two and on three.
fn compared(two: &Look, three: &Look, draft: &Draft) -> HashMap<String, Vec<Size>> {
    let sizes = two.iter().filter_map(|(name, two)| {
        let three = three.get(name).filter(|three| three.len() == two.len())?;
        if draft.constants.contains_key(name) {
            return Some((name.clone(), two.iter().map(|&size| Size::Fixed(size)).collect()));
        }
        let pairs = two.iter().zip(three);
        let sizes = pairs.map(|(&two, &three)| size(two, three)).collect::<Option<Vec<Size>>>()?;
        Some((name.clone(), sizes))
    });
    sizes.collect()
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
    fn sizes_that_grow_with_the_rows_are_found() {
        assert_eq!(size(5, 5), Some(Size::Fixed(5)));
        assert_eq!(size(8, 12), Some(Size::Rows(4)));
        assert_eq!(size(3, 4), None);
        assert_eq!(size(2, 9), None);
    }

    #[test]
    fn sizes_are_joined_as_operators_broadcast() {
        let sizes = HashMap::from([
            ("x".to_owned(), vec![Size::Rows(1), Size::Fixed(5), Size::Fixed(1)]),
            ("y".to_owned(), vec![Size::Fixed(1), Size::Fixed(7)]),
            ("z".to_owned(), vec![Size::Fixed(4)]),
        ]);
        let survey = Survey { sizes, looks: Vec::new() };
        let joined = vec![Size::Rows(1), Size::Fixed(5), Size::Fixed(7)];
        assert_eq!(survey.joined("x", "y"), Some(joined));
        assert_eq!(survey.joined("y", "z"), None);
        assert_eq!(survey.joined("x", "unknown"), None);
    }
}
