//! Survey: the sizes of a graph's values, measured by running it, and the work that follows from them.

use std::collections::{BTreeMap, HashMap};

use parm_parity_models::onnx::ops;
use parm_parity_models::onnx::proto::NodeProto;
use parm_parity_models::onnx::rewrite::Draft;
use parm_protocol::Tensor;
use serde::Serialize;

use super::{probe, types};
use crate::Error;
use crate::memory::{self, Need, UNFUSED};
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

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

/// The sizes of all values in runs of so many rows; `None` for runs that fail, and nothing if the engine cannot load the
/// graph. It returns sizes, not values: those of all layers of a picture fill the memory.
fn looks(workshop: &Workshop, draft: &Draft, runs: &[(&Rows, usize)]) -> Option<Vec<Option<Look>>> {
    let types = types(draft);
    let made = draft.nodes.iter().flat_map(|node| &node.output);
    let values: Vec<&String> = made.filter(|name| types.contains_key(*name)).collect();
    let (mut sized, mut sizes) = (draft.clone(), Vec::with_capacity(values.len()));
    for value in &values {
        let size = sized.fresh(&format!("{value}/size"));
        let node = sized.make("Shape", &[value], &size, []);
        sized.nodes.push(node);
        sizes.push(size);
    }
    let mut runner = workshop.load("survey", probe(&sized, &sizes).ok()?.bytes()).ok()?;
    let look = |(rows, count): &(&Rows, usize)| -> Option<Look> {
        let outputs = runner.run(rows, 0..*count).ok()?;
        let mut look = Look::new();
        for (value, output) in values.iter().zip(&outputs) {
            let sizes = parm_arrays::numbers(output)?.map(|size| size as usize);
            look.insert((*value).clone(), sizes.collect());
        }
        look.extend(rows.sizes().map(|(name, row)| (name.to_owned(), [&[*count], row].concat())));
        let constants = draft.constants.iter();
        look.extend(constants.map(|(name, tensor)| (name.clone(), tensor.dims().to_vec())));
        Some(look)
    };
    Some(runs.iter().map(look).collect())
}

fn look_at_one(workshop: &Workshop, draft: &Draft, rows: &Rows) -> Option<Look> {
    looks(workshop, draft, &[(rows, 1)])?.pop()?
}

impl Survey {
    /// Runs the graph on two and on three rows, on one and on two if rows are large, or on one if it takes one at a time,
    /// and also on shorter rows if their sizes vary. If the engine cannot run the graph, the survey is empty, and rewrites
    /// that need sizes are skipped.
    pub(crate) fn of(workshop: &Workshop, draft: &Draft, rows: &Rows) -> Result<Self, Error> {
        if rows.len() < 3 {
            return Ok(Self::default());
        }
        let counts: &[usize] = match workshop.together(3, UNFUSED) {
            _ if !rows.is_batched() => &[1],
            3 => &[2, 3],
            _ => &[1, 2],
        };
        let shorter = rows.first(counts[0])?.halved()?;
        let full = counts.iter().map(|&count| (rows, count));
        let runs: Vec<(&Rows, usize)> = full.chain(shorter.as_ref().map(|rows| (rows, counts[0]))).collect();
        let mut looks = looks(workshop, draft, &runs).unwrap_or_default();
        // Some graphs fail for other sizes, whatever they declare.
        let shorter = looks.split_off(counts.len().min(looks.len()));
        let Some(mut looks) = looks.into_iter().collect::<Option<Vec<Look>>>() else {
            return Ok(Self::default());
        };
        let sizes = match (&looks[..], counts) {
            ([few, more], [a, b]) if rows.is_fixed() => compared((few, *a), (more, *b), draft),
            _ => HashMap::new(),
        };
        looks.extend(shorter.into_iter().flatten());
        Ok(Self { sizes, looks })
    }

    /// The memory that a row needs; `None` if the engine cannot tell the sizes of values.
    pub(crate) fn need(workshop: &Workshop, draft: &Draft, rows: &Rows) -> Option<Need> {
        let look = look_at_one(workshop, draft, rows)?;
        Some(Need::of(draft, (&look, &types(draft)), rows.is_batched()))
    }

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

/// Rows of a run that returns inner values, if these fit the memory.
const TOGETHER: usize = 4;

/// Runs all rows and gives these values of each run to `take`, with the run's number and the number of runs.
pub(crate) fn inner_values(
    workshop: &Workshop,
    (draft, values): (&Draft, &[String]),
    (rows, progress): (&Rows, &dyn Progress),
    mut take: impl FnMut((usize, usize), Vec<Tensor>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (types, look) = (types(draft), look_at_one(workshop, draft, rows).unwrap_or_default());
    // None if sizes are unknown.
    let bytes = values.iter().map(|value| memory::bytes(value, &look, &types)).sum();
    let together = workshop.returning(TOGETHER, bytes)?;
    let mut runner = workshop.load("values", probe(draft, values)?.bytes())?;
    let runs = rows.len().div_ceil(together);
    runner.run_all(rows, (together, progress), |run, made| take((run, runs), made))
}

/// Derives the sizes for any number of rows from runs on two numbers of them, of which the second is one more.
fn compared(
    (few, a): (&Look, usize),
    (more, b): (&Look, usize),
    draft: &Draft,
) -> HashMap<String, Vec<Size>> {
    let sizes = few.iter().filter_map(|(name, few)| {
        let more = more.get(name).filter(|more| more.len() == few.len())?;
        if draft.constants.contains_key(name) {
            return Some((name.clone(), few.iter().map(|&size| Size::Fixed(size)).collect()));
        }
        let pairs = few.iter().zip(more);
        let sizes = pairs.map(|(&few, &more)| size((few, a), (more, b))).collect::<Option<Vec<Size>>>()?;
        Some((name.clone(), sizes))
    });
    sizes.collect()
}

/// A size that is `few` for `a` rows and `more` for `b`.
fn size((few, a): (usize, usize), (more, b): (usize, usize)) -> Option<Size> {
    match few == more {
        true => Some(Size::Fixed(few)),
        false => (few.is_multiple_of(a) && few / a * b == more).then_some(Size::Rows(few / a)),
    }
}

/// The number of operators that are listed; the others are small.
const MOST: usize = 5;

/// An operator's share of the work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Work {
    /// The operator; its name tells variants apart.
    pub operator: String,
    /// Its share of the multiplications; any other operation on a value counts as one.
    pub share: f64,
}

/// The operators with the most work, in descending order. Empty if a size is unknown, since shares would be untrue.
pub(crate) fn work(draft: &Draft, survey: &Survey) -> Vec<Work> {
    let Some(look) = survey.looks().first() else { return Vec::new() };
    let mut kinds: BTreeMap<String, f64> = BTreeMap::new();
    for node in &draft.nodes {
        let count = ops::multiplications(node, |name| look.get(name).map(Vec::as_slice));
        let Some(count) = count else { return Vec::new() };
        *kinds.entry(name(draft, node)).or_default() += count;
    }
    let total = kinds.values().sum::<f64>().max(1.0);
    let all = kinds.into_iter().map(|(operator, count)| Work { operator, share: count / total });
    let mut all: Vec<Work> = all.filter(|work| work.share >= 0.005).collect();
    all.sort_by(|a, b| b.share.total_cmp(&a.share));
    all.truncate(MOST);
    all
}

/// The name of an operator in sentences: grouped convolutions and products of two values have names of their own.
pub(crate) fn name(draft: &Draft, node: &NodeProto) -> String {
    let is_constant = |place: usize| node.at(place).is_some_and(|name| draft.constants.contains_key(name));
    match node.op_type.as_str() {
        "Conv" if node.int("group").unwrap_or(1) > 1 => "Conv in groups".into(),
        "MatMul" if !is_constant(0) && !is_constant(1) => "MatMul of two values".into(),
        op => op.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_grow_with_the_rows_are_found() {
        let of = |few, more| size((few, 2), (more, 3));
        assert_eq!(of(5, 5), Some(Size::Fixed(5)));
        assert_eq!(of(8, 12), Some(Size::Rows(4)));
        assert_eq!(of(3, 4), None);
        assert_eq!(of(2, 9), None);
        let of = |few, more| size((few, 1), (more, 2));
        assert_eq!((of(1, 1), of(3, 6), of(3, 4)), (Some(Size::Fixed(1)), Some(Size::Rows(3)), None));
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
