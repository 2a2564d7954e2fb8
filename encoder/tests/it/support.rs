//! Models, groups and loss patterns that the tests of all codes share.

use parm_encoder::{Code, CodeSpec, Head, Input, Kind, Members, Received, Set, Workspace};
use parm_random::Random;

/// F(x) = W x + b, computed in f64 and rounded once.
pub(crate) struct Affine {
    pub(crate) weights: Vec<Vec<f32>>,
    pub(crate) bias: Vec<f32>,
}

impl Affine {
    pub(crate) fn new(numbers: &mut Random, inputs: usize, outputs: usize, biased: bool) -> Self {
        let weights = (0..outputs).map(|_| numbers.uniforms(1.0, inputs)).collect();
        let bias = if biased { numbers.uniforms(1.0, outputs) } else { vec![0.0; outputs] };
        Self { weights, bias }
    }

    pub(crate) fn run(&self, query: &[f32]) -> Vec<f32> {
        let row = |(row, bias): (&Vec<f32>, &f32)| {
            let sum: f64 = row.iter().zip(query).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
            (sum + f64::from(*bias)) as f32
        };
        self.weights.iter().zip(&self.bias).map(row).collect()
    }
}

/// A code with a group, some slots of which may be blank.
pub(crate) struct Group {
    pub(crate) code: Box<dyn Code>,
    pub(crate) members: Set,
    pub(crate) queries: Vec<Option<Vec<f32>>>,
    pub(crate) parities: Vec<Vec<f32>>,
}

impl Group {
    /// A group with these queries.
    pub(crate) fn of(spec: &CodeSpec, dims: &[usize], query: impl FnMut(usize) -> Option<Vec<f32>>) -> Self {
        let code = spec.build().expect("a valid spec");
        let input = Input::floats(dims);
        let queries: Vec<Option<Vec<f32>>> = (0..spec.k).map(query).collect();
        let len: usize = code.parity_dims(input).expect("an input that fits").iter().product();
        assert_eq!(len, input.len() * code.query_scale());
        let mut parities = vec![vec![f32::NAN; len]; code.recovery().parities];
        let slices: Vec<Option<&[f32]>> = queries.iter().map(Option::as_deref).collect();
        let mut outs: Vec<&mut [f32]> = parities.iter_mut().map(Vec::as_mut_slice).collect();
        code.encode(Members { input, queries: &slices }, &mut outs, &mut Workspace::new()).expect("encodes");
        Self { code, members: Set::present(&queries), queries, parities }
    }
}

/// Decodes a slot from the outputs of `in_predictions` and `in_parities` only.
pub(crate) fn decode(
    group: &Group,
    predictions: &[Vec<f32>],
    parities: &[Vec<f32>],
    in_predictions: Set,
    in_parities: Set,
    slot: usize,
) -> Result<Vec<f32>, parm_encoder::Error> {
    let (own, coded) = (only(predictions, in_predictions), only(parities, in_parities));
    let received = Received { members: group.members, predictions: &own, parities: &coded };
    let mut out = vec![f32::NAN; predictions[slot].len()];
    group.code.decode(received, slot, &mut out, &mut Workspace::new()).map(|()| out)
}

fn only(outputs: &[Vec<f32>], wanted: Set) -> Vec<Option<&[f32]>> {
    let outputs = outputs.iter().enumerate();
    outputs.map(|(index, output)| wanted.contains(index).then_some(output.as_slice())).collect()
}

/// Whether two vectors agree to `tolerance` times the largest expected value.
pub(crate) fn agree(actual: &[f32], expect: &[f32], tolerance: f32) -> bool {
    let scale = expect.iter().fold(1.0_f32, |most, value| most.max(value.abs()));
    actual.len() == expect.len() && actual.iter().zip(expect).all(|(a, b)| (a - b).abs() <= tolerance * scale)
}

/// Every subset of 0..n.
pub(crate) fn subsets(n: usize) -> impl Iterator<Item = Set> {
    (0_u64..1 << n).map(move |bits| (0..n).filter(|index| bits >> index & 1 == 1).collect())
}

/// Specs of all codes that are exact with a linear model, for this k.
pub(crate) fn exact_specs(k: usize) -> Vec<CodeSpec> {
    let mut specs = vec![CodeSpec::new(Kind::Sum, k, 1)];
    for r in 1..=3 {
        specs.push(CodeSpec::new(Kind::Weighted, k, r));
        specs.push(CodeSpec::new(Kind::Mds, k, r));
        for kind in [Kind::Slots, Kind::Tiles] {
            for head in [Head::Slots, Head::Sum] {
                specs.push(CodeSpec { head: Some(head), ..CodeSpec::new(kind, k, r) });
            }
        }
    }
    specs
}
