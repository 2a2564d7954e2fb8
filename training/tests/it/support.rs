//! The cases that `golden/make.py` wrote.

use parm_parity_models::onnx::{Limits, Model};
use parm_training::{Array, Host};

/// A small model with inputs and ONNX Runtime's outputs.
pub(crate) struct Case {
    pub(crate) name: String,
    model: Vec<u8>,
    pub(crate) inputs: Vec<Host>,
    pub(crate) outputs: Vec<Host>,
}

impl Case {
    pub(crate) fn model(&self) -> Model {
        Model::from_bytes(self.model.clone(), &Limits::default()).expect("a sound file")
    }
}

/// All cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut reader = Reader { rest: include_bytes!("golden/cases.bin") };
    let mut cases = Vec::new();
    while !reader.rest.is_empty() {
        let name = String::from_utf8(reader.block().to_vec()).expect("names are text");
        let model = reader.block().to_vec();
        cases.push(Case { name, model, inputs: reader.tensors(), outputs: reader.tensors() });
    }
    cases
}

/// The case called `name`.
pub(crate) fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name == name).expect("the file has this case")
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        taken
    }

    fn number(&mut self) -> usize {
        u32::from_le_bytes(self.take(4).try_into().expect("four bytes")) as usize
    }

    fn block(&mut self) -> &'a [u8] {
        let count = self.number();
        self.take(count)
    }

    fn tensors(&mut self) -> Vec<Host> {
        (0..self.number()).map(|_| self.tensor()).collect()
    }

    fn tensor(&mut self) -> Host {
        let kind = self.take(1)[0];
        let shape: Vec<usize> = (0..self.number()).map(|_| self.number()).collect();
        let count: usize = shape.iter().product();
        match kind {
            0 => Host::Floats(array(shape, self.take(4 * count), f32::from_le_bytes)),
            1 => Host::Ints(array(shape, self.take(8 * count), i64::from_le_bytes)),
            _ => Host::Bools(array(shape, self.take(count), |[byte]| byte != 0)),
        }
    }
}

fn array<T: Clone, const N: usize>(shape: Vec<usize>, bytes: &[u8], read: fn([u8; N]) -> T) -> Array<T> {
    let data = bytes.chunks_exact(N).map(|chunk| read(chunk.try_into().expect("chunks are exact")));
    Array::new(shape, data.collect()).expect("as many elements as the shape says")
}

/// Whether two outputs agree: floats within `tolerance` of the larger of one and their size, others exactly.
pub(crate) fn agree(actual: &Host, expected: &Host, tolerance: f32) -> bool {
    match (actual, expected) {
        (Host::Floats(actual), Host::Floats(expected)) => {
            let pairs = actual.data().iter().zip(expected.data());
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= tolerance * b.abs().max(1.0);
            actual.shape() == expected.shape() && pairs.into_iter().all(close)
        }
        _ => actual == expected,
    }
}
