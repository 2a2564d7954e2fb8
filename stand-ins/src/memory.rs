//! Bounds of a search's memory.
//!
//! Audio and pictures have tens of megabytes of values per row and layer, so a run of several rows, a run that returns
//! all values, or twenty loaded candidates fill a machine. One run of a single row gives the sizes of all values. From
//! these and the order of the nodes follows how many bytes are needed at a time ([`live`]), and from that the rows of
//! each run and the candidates that are loaded together.
//!
//! Rejected: measuring the process, whose memory depends on its allocator and on other threads; engines that return
//! memory after each run, since servers run without that, and costs would not be theirs.

use std::collections::HashMap;

use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{DataType, Kind};
use parm_protocol::MEASURED_ROWS;

use crate::graph::{Links, Look};

/// Memory for a run while candidates are made.
pub(crate) const RUN: u64 = 768 << 20;
/// Memory for the models that take turns while costs are measured.
const TURNS: u64 = 1280 << 20;
/// Memory for one model's answers to the rows that judge. Some copies exist while they are compared.
const ANSWERS: u64 = 64 << 20;
/// Memory for inner values that a run returns: the engine has them, and so do we.
pub(crate) const VALUES: u64 = 256 << 20;
/// ONNX Runtime keeps blocks whose sizes are powers of two.
pub(crate) const ARENA: u64 = 2;
/// Sessions have the weights, and the same weights in another order.
const WEIGHTS: u64 = 2;
/// Runs without fused operators, as when the sizes of all values are wanted.
pub(crate) const UNFUSED: u64 = 2 * ARENA;
/// Memory for a step of teaching, whose rows need their values, gradients of these, and the columns of convolutions.
pub(crate) const STEP: u64 = 1 << 30;
const TAUGHT: u64 = 6;
/// Bytes that a row of the deployed model needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// The values that exist at the same time.
    pub(crate) live: u64,
    /// All values of a run.
    pub(crate) values: u64,
    pub(crate) answers: u64,
    /// Whether a run may have several rows.
    pub(crate) is_batched: bool,
    /// The bytes of the deployed model's file.
    pub(crate) file: u64,
}

impl Need {
    /// From the sizes of a run of one row.
    pub(crate) fn of(
        draft: &Draft,
        (look, types): (&Look, &HashMap<String, DataType>),
        is_batched: bool,
    ) -> Self {
        let bytes = |name: &str| bytes(name, look, types);
        let answers = draft.graph().output.iter().map(|output| bytes(&output.name)).sum();
        let values = draft.nodes.iter().flat_map(|node| &node.output).map(|name| bytes(name)).sum();
        Self { live: live(draft, bytes), values, answers, is_batched, file: 0 }
    }

    /// The rows of a step of teaching; 0 if one row needs too much.
    pub(crate) fn taught(&self) -> usize {
        fitting(STEP, TAUGHT * self.values)
    }

    /// The most rows whose answers fit, but enough to measure costs on.
    pub(crate) fn judged(&self, wanted: usize) -> usize {
        wanted.min(fitting(ANSWERS, self.answers)).max(MEASURED_ROWS[3])
    }

    /// The numbers of rows in a run that costs are measured for: at least one.
    pub(crate) fn measured(&self) -> &'static [usize] {
        let fits = |rows: usize| self.loaded(self.file, 1) + self.loaded(self.file, rows) <= TURNS;
        let count = MEASURED_ROWS.iter().take_while(|rows| fits(**rows)).count();
        &MEASURED_ROWS[..count.max(1)]
    }

    /// How many candidates, of files of at most this size, are loaded with the deployed model at the same time.
    pub(crate) fn together(&self, largest: u64) -> usize {
        let rows = self.measured().last().copied().unwrap_or(1);
        fitting(TURNS.saturating_sub(self.loaded(self.file, 1)), self.loaded(largest, rows)).max(1)
    }

    /// A model's memory after runs of so many rows.
    fn loaded(&self, file: u64, rows: usize) -> u64 {
        let rows = if self.is_batched { rows as u64 } else { 1 };
        WEIGHTS * file + ARENA * rows * self.live
    }
}

/// How many things of this size fit.
pub(crate) fn fitting(room: u64, each: u64) -> usize {
    usize::try_from(room / each.max(1)).unwrap_or(usize::MAX)
}

pub(crate) fn in_words(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

pub(crate) fn bytes(name: &str, look: &Look, types: &HashMap<String, DataType>) -> u64 {
    let bits = types.get(name).and_then(|datatype| datatype.bits()).unwrap_or(32) as u64;
    let count: u64 = look.get(name).map_or(0, |dims| dims.iter().map(|&size| size as u64).product());
    count * bits / 8
}

/// The most bytes that values of a run need at a time, if each is freed behind its last reader. An operator that changes
/// values one by one writes over them.
fn live(draft: &Draft, bytes: impl Fn(&str) -> u64) -> u64 {
    let links = Links::of(draft);
    let is_inner = |name: &str| links.maker(name).is_some();
    let last = |name: &str| links.readers(name).iter().copied().max();
    let (mut now, mut most) = (0u64, 0u64);
    for (at, node) in draft.nodes.iter().enumerate() {
        let mut read: Vec<&String> = node.input.iter().filter(|name| is_inner(name)).collect();
        read.sort_unstable();
        read.dedup();
        let freed: u64 = read
            .iter()
            .filter(|name| last(name) == Some(at) && !links.is_kept(name))
            .map(|name| bytes(name))
            .sum();
        let made: u64 = node.output.iter().filter(|name| !name.is_empty()).map(|name| bytes(name)).sum();
        let kind = Kind::of(node);
        let writes_over = kind.is_by_value()
            || matches!(kind, Kind::Same | Kind::Scaled)
            || (kind == Kind::Moved && !node.is(&["Transpose"]));
        let in_place = writes_over && made <= freed;
        most = most.max(if in_place { now } else { now + made });
        now = (now + made).saturating_sub(freed);
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests {
    use parm_parity_models::onnx::{Builder, Conv, Value};

    use super::*;
    use crate::graph::types;

    #[test]
    fn live_values_are_those_with_readers_to_come() {
        let (mut builder, x) = Builder::reading("network", 1, Value::batch_of_f32("x", &[1, 8, 8]));
        let wide = builder.conv("wide", &x, Conv::same(1, 16, 3)).unwrap();
        let relu = builder.node("Relu", "relu", &[&wide]);
        let narrow = builder.conv("narrow", &relu, Conv::same(16, 4, 3)).unwrap();
        builder.node("Relu", "y", &[&narrow]);
        builder.output(Value::batch_of_f32("y", &[4, 8, 8]));
        let draft = Draft::new(&builder.build().unwrap()).unwrap();
        let sizes = [("x", 1), ("wide", 16), ("relu", 16), ("narrow", 4), ("y", 4)];
        let look: Look =
            sizes.into_iter().map(|(name, channels)| (name.to_owned(), vec![1, channels, 8, 8])).collect();
        let need = Need::of(&draft, (&look, &types(&draft)), true);
        assert_eq!((need.live, need.answers), ((16 + 4) * 64 * 4, 4 * 64 * 4));
        assert_eq!(need.values, (16 + 16 + 4 + 4) * 64 * 4, "gradients need all values");
    }

    #[test]
    fn large_rows_are_measured_alone_and_in_smaller_runs() {
        let need = |live, answers| Need { live, values: 4 * live, answers, is_batched: true, file: 1 << 20 };
        let small = need(1 << 10, 40);
        assert_eq!((small.measured(), small.judged(2_000)), (&MEASURED_ROWS[..], 2_000));
        assert!(small.together(1 << 20) >= 20, "all take turns");
        let large = need(110 << 20, 1 << 20);
        assert_eq!((large.measured(), large.judged(2_000)), (&MEASURED_ROWS[..3], 64));
        assert_eq!(large.together(1 << 20), 1);
        assert_eq!((large.taught(), need(1 << 30, 4).taught()), (0, 0), "not even one row in a step");
        assert_eq!(need(10 << 20, 4).taught(), 4);
        let huge = need(4 << 30, 1 << 40);
        assert_eq!((huge.measured(), huge.judged(2_000)), (&MEASURED_ROWS[..1], MEASURED_ROWS[3]));
        let alone = Need { is_batched: false, ..large };
        assert_eq!(alone.measured(), MEASURED_ROWS, "each row runs alone");
    }
}
