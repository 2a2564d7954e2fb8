//! Text models: an encoder with `tokenizer.json` next to its file takes texts, and its clients need no tokenizer.
//!
//! *Problem.* Encoders take token ids and masks and return a vector for each token. Clients have texts and expect a vector
//! for each text, or a score for each pair of texts.
//!
//! *Choice.* Such a model is served with one input of strings. A row is a text, or a pair if the graph returns one score.
//! The texts of a run are padded to one length, and a mask hides the padding. Outputs with a vector for each token are
//! pooled to one for each row. Everything behind the engine then works as for other models: batches, stand-ins, hedges.
//! Each run returns the number of tokens of each row after the outputs.
//!
//! *Rejected.* The tokenizer in the frontend: it has no files of a worker's models.

mod pooling;
mod tokens;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use parm_parity_models::onnx;
use parm_parity_models::repository::{POOLING, TOKENIZER};
use parm_protocol::{DataType, Tensor};

use super::{Declared, Model, Signature, joined, texts_of};
use crate::Error;
use pooling::Pooling;
use tokens::{RowTokens, Tokenised, Tokeniser};

/// The name of the one input.
const INPUT: &str = "text";

/// Lengths are rounded up to a multiple: engines compile for shapes.
const STEP: usize = 16;

/// The tokenizer and the pooling of a text model.
pub struct Texts {
    tokeniser: Tokeniser,
    pooling: Pooling,
}

impl Texts {
    /// Reads the files next to a model; `None` without `tokenizer.json`.
    pub fn beside(model: &Path) -> Result<Option<Self>, Error> {
        let Some(tokeniser) = Tokeniser::beside(model)? else { return Ok(None) };
        Ok(Some(Self { tokeniser, pooling: Pooling::beside(model)? }))
    }

    /// The names of the files that its stand-ins need as well, relative to the model's folder.
    pub const FILES: [&str; 3] = [TOKENIZER, "tokenizer_config.json", POOLING];

    /// The inputs and outputs with which a graph is served; an error if its inputs are not those of an encoder.
    pub fn served(&self, graph: &Signature) -> Result<Signature, Error> {
        Ok(self.interface(graph)?.signature)
    }

    /// The graph's inputs for rows of texts, padded to the longest.
    pub fn tokens(&self, graph: &Signature, texts: &[String]) -> Result<Vec<Tensor>, Error> {
        let interface = self.interface(graph)?;
        let tokeniser = self.tokeniser.limited(interface.length, interface.texts);
        let tokeniser = tokeniser.map_err(|message| Error::Run { message })?;
        let rows = tokeniser.tokens(texts, interface.texts)?;
        let tokenised = tokeniser.padded(&rows, interface.length, STEP);
        interface.inputs.iter().map(|(role, datatype)| tokenised.tensor(*role, *datatype)).collect()
    }

    /// The graph with its pooling, so that its outputs are those that are served.
    pub fn pooled(&self, graph: &onnx::Model) -> Result<onnx::Model, onnx::Defect> {
        pooling::pooled(graph, self.pooling)
    }

    /// The names of the outputs that are pooled.
    pub fn pooled_outputs(&self, graph: &Signature) -> Vec<String> {
        let name = |(output, pooling): (&Declared, &Option<Pooling>)| pooling.map(|_| output.name.clone());
        let interface = self.interface(graph);
        interface.map_or(Vec::new(), |own| graph.outputs.iter().zip(&own.pooled).filter_map(name).collect())
    }

    fn interface(&self, graph: &Signature) -> Result<Interface, Error> {
        Interface::of(graph, self.pooling).map_err(|message| Error::Run { message })
    }

    /// The model with texts as its input, or the model itself with the reason if its inputs are not those of an encoder.
    pub(crate) fn over(&self, model: Box<dyn Model>) -> (Box<dyn Model>, Option<String>) {
        let read = || {
            let interface = Interface::of(model.signature(), self.pooling)?;
            let tokeniser = self.tokeniser.limited(interface.length, interface.texts)?;
            Ok((Arc::new(tokeniser), Arc::new(interface)))
        };
        match read() {
            Ok((tokeniser, interface)) => {
                (Box::new(TextModel { model, tokeniser, interface, splits: false }), None)
            }
            Err(reason) => (model, Some(reason)),
        }
    }
}

/// An input of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Ids,
    Mask,
    /// The first or the second text of a pair.
    Kinds,
}

/// How texts become the graph's inputs, and its outputs those of the model.
struct Interface {
    inputs: Vec<(Role, DataType)>,
    /// The graph's only length, if it is fixed.
    length: Option<usize>,
    /// Texts in a row: 1, or 2 if the graph scores pairs.
    texts: usize,
    /// Outputs that are pooled, in the graph's order.
    pooled: Vec<Option<Pooling>>,
    signature: Signature,
}

impl Interface {
    fn of(graph: &Signature, pooling: Pooling) -> Result<Self, String> {
        let role = |input: &Declared| {
            let role = match input.name.as_str() {
                "input_ids" => Role::Ids,
                "attention_mask" => Role::Mask,
                "token_type_ids" => Role::Kinds,
                other => return Err(format!("'{other}' is no input of an encoder")),
            };
            let fits = matches!(input.datatype, DataType::Int64 | DataType::Int32) && input.shape.len() == 2;
            let misfit = || format!("'{}' is {} of shape {:?}", input.name, input.datatype, input.shape);
            fits.then_some((role, input.datatype)).ok_or_else(misfit)
        };
        let inputs = graph.inputs.iter().map(role).collect::<Result<Vec<_>, _>>()?;
        let has = |wanted| inputs.iter().any(|(role, _)| *role == wanted);
        if !has(Role::Ids) || !has(Role::Mask) {
            return Err("it lacks input_ids or attention_mask".into());
        }
        let length = graph.inputs.iter().find_map(|input| usize::try_from(input.shape[1]).ok());
        let pools = |output: &Declared| output.datatype == DataType::Fp32 && output.shape.len() == 3;
        let pooled = graph.outputs.iter().map(|output| pools(output).then_some(pooling)).collect();
        let row = |output: &Declared| match pools(output) {
            true => Declared { shape: vec![output.shape[0], output.shape[2]], ..output.clone() },
            false => output.clone(),
        };
        let scores = matches!(&graph.outputs[..], [only] if matches!(only.shape[..], [_, 1]));
        let texts = if scores { 2 } else { 1 };
        let shape = vec![-1, texts as i64];
        let signature = Signature {
            inputs: vec![Declared { name: INPUT.into(), datatype: DataType::Bytes, shape }],
            outputs: graph.outputs.iter().map(row).collect(),
        };
        Ok(Self { inputs, length, texts, pooled, signature })
    }
}

/// An encoder that takes texts.
struct TextModel {
    model: Box<dyn Model>,
    tokeniser: Arc<Tokeniser>,
    interface: Arc<Interface>,
    /// Whether many long rows run in parts.
    splits: bool,
}

impl TextModel {
    /// Runs rows that share the memory of a run.
    fn run_part(&mut self, rows: &[RowTokens]) -> Result<Vec<Tensor>, Error> {
        let Interface { inputs: roles, length, pooled, .. } = &*self.interface;
        let tokenised = self.tokeniser.padded(rows, *length, STEP);
        let inputs: Vec<Tensor> = roles
            .iter()
            .map(|(role, datatype)| tokenised.tensor(*role, *datatype))
            .collect::<Result<_, _>>()?;
        let outputs = self.model.run(&inputs)?;
        let mut pooled = pooled.iter();
        let pool = |output| match pooled.next().copied().flatten() {
            Some(pooling) => pooling.rows(&output, &tokenised),
            None => Ok(output),
        };
        outputs.into_iter().map(pool).chain([tokenised.counted()]).collect()
    }
}

impl Model for TextModel {
    fn signature(&self) -> &Signature {
        &self.interface.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let (length, in_row) = (self.interface.length, self.interface.texts);
        let failed = |message: String| Error::Run { message };
        let [text] = inputs else { return Err(failed(format!("one input of texts, not {}", inputs.len()))) };
        if text.shape().get(1) != Some(&in_row) {
            return Err(failed(format!("a row has {in_row} texts, and the shape is {:?}", text.shape())));
        }
        let rows = self.tokeniser.tokens(&texts_of(text)?, in_row)?;
        if !self.splits {
            return self.run_part(&rows);
        }
        let parts = parts(rows.iter().map(|row| length.unwrap_or(row.len())));
        let parts = parts.into_iter().map(|part| self.run_part(&rows[part]));
        Ok(joined(&parts.collect::<Result<Vec<_>, _>>()?)?)
    }

    fn split_rows(&mut self) {
        let Interface { pooled, signature, .. } = &*self.interface;
        // Parts of several lengths have no common shape where an output keeps the length.
        let has_one_shape = |(output, pooling): (&Declared, &Option<Pooling>)| {
            pooling.is_some() || output.shape.iter().skip(1).all(|dim| *dim >= 0)
        };
        self.splits = signature.outputs.iter().zip(pooled).all(has_one_shape);
    }

    fn counts_tokens(&self) -> bool {
        true
    }

    fn fix_rows(&mut self, wanted: &[usize]) -> Result<Vec<usize>, Error> {
        self.model.fix_rows(wanted)
    }

    /// Longer texts take longer.
    fn is_steady(&self) -> bool {
        false
    }

    fn replica(&self) -> Option<Box<dyn Model>> {
        let (tokeniser, interface) = (self.tokeniser.clone(), self.interface.clone());
        let own = |model| Self { model, tokeniser, interface, splits: self.splits };
        self.model.replica().map(|model| Box::new(own(model)) as Box<dyn Model>)
    }
}

/// Most pairs of tokens of a run: those of 128 rows of 512 tokens.
const MOST_PAIRS: usize = 1 << 25;

/// Splits rows of so many tokens into parts, in order, that share the memory of one run.
///
/// Rows of a run are padded to the longest, so one long text among a thousand short ones would make a request of some
/// kilobytes take the memory of a thousand long texts. A part ends where padding and the scores of attention, one for each
/// pair of tokens of a row, would exceed a bound. A row that exceeds it alone runs alone.
fn parts(lengths: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let (mut parts, mut start, mut end, mut longest) = (Vec::new(), 0usize, 0usize, 0usize);
    for length in lengths {
        let with = longest.max(length);
        let rows = end + 1 - start;
        let fits = rows.saturating_mul(with.saturating_mul(with)) <= MOST_PAIRS;
        if rows > 1 && !fits {
            parts.push(start..end);
            (start, longest) = (end, length);
        } else {
            longest = with;
        }
        end += 1;
    }
    parts.push(start..end);
    parts
}

impl Tokenised {
    /// The tokens of each row, as the last tensor of a run.
    fn counted(&self) -> Result<Tensor, Error> {
        let data: Vec<u8> = self.counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        Ok(Tensor::new(DataType::Uint32, [self.counts.len()].as_slice(), data.into())?)
    }

    fn tensor(&self, role: Role, datatype: DataType) -> Result<Tensor, Error> {
        let values = match role {
            Role::Ids => &self.ids,
            Role::Mask => &self.mask(),
            Role::Kinds => &self.kinds,
        };
        let data: Vec<u8> = match datatype {
            DataType::Int32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            _ => values.iter().flat_map(|value| u64::from(*value).to_le_bytes()).collect(),
        };
        Ok(Tensor::new(datatype, [self.counts.len(), self.length].as_slice(), data.into())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::pack;

    fn declared(name: &str, datatype: DataType, shape: &[i64]) -> Declared {
        Declared { name: name.into(), datatype, shape: shape.into() }
    }

    fn graph(inputs: &[&str], output: &[i64]) -> Signature {
        Signature {
            inputs: inputs.iter().map(|name| declared(name, DataType::Int64, &[-1, -1])).collect(),
            outputs: vec![declared("out", DataType::Fp32, output)],
        }
    }

    #[test]
    fn inputs_of_other_models_stay() {
        for (inputs, reason) in [
            (&["input_ids", "attention_mask", "past_key_values"][..], "'past_key_values' is no input"),
            (&["input_ids"], "lacks input_ids or attention_mask"),
        ] {
            let error = Interface::of(&graph(inputs, &[-1, -1, 8]), Pooling::Mean).err().unwrap();
            assert!(error.contains(reason), "{error}");
        }
        let mut floats = graph(&["input_ids", "attention_mask"], &[-1, -1, 8]);
        floats.inputs[1].datatype = DataType::Fp32;
        assert!(Interface::of(&floats, Pooling::Mean).is_err());
    }

    /// Returns the first token of each row, and notes the padded tokens of each run.
    struct Noting(Signature, Arc<parking_lot::Mutex<Vec<usize>>>);

    impl Model for Noting {
        fn signature(&self) -> &Signature {
            &self.0
        }

        fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
            let &[rows, length] = inputs[0].shape() else { panic!("{:?}", inputs[0].shape()) };
            self.1.lock().push(rows * length);
            let firsts = inputs[0].data().chunks(8 * length).map(|row| f32::from(row[0]));
            let pairs: Vec<f32> = firsts.flat_map(|first| [first, 0.0]).collect();
            Ok(vec![Tensor::from_f32([rows, 2].as_slice(), &pairs).unwrap()])
        }

        fn replica(&self) -> Option<Box<dyn Model>> {
            Some(Box::new(Self(self.0.clone(), self.1.clone())))
        }
    }

    #[test]
    fn long_text_does_not_multiply_the_memory_of_short_ones() {
        let folder = tempfile::tempdir().unwrap();
        let file = r#"{ "version": "1.0", "added_tokens": [], "normalizer": null, "padding": null, "truncation": null,
            "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
            "model": { "type": "WordLevel", "unk_token": "0", "vocab": { "0": 0, "1": 1, "2": 2 } } }"#;
        std::fs::write(folder.path().join(TOKENIZER), file).unwrap();
        let limit = r#"{ "model_max_length": 8192 }"#;
        std::fs::write(folder.path().join("tokenizer_config.json"), limit).unwrap();
        let texts = Texts::beside(&folder.path().join("model.onnx")).unwrap().unwrap();
        let (graph, runs) = (graph(&["input_ids", "attention_mask"], &[-1, 2]), Arc::default());
        let (mut model, None) = texts.over(Box::new(Noting(graph, Arc::clone(&runs)))) else { panic!() };
        let long = "1 ".repeat(8192);
        let rows: Vec<String> =
            std::iter::once(long).chain(std::iter::repeat_n("2".to_owned(), 400)).collect();
        let text = Tensor::new(DataType::Bytes, [401, 1].as_slice(), pack(&rows)).unwrap();
        // Rows that may depend on each other stay together.
        assert_eq!(model.run(std::slice::from_ref(&text)).unwrap()[0].rows(), 401);
        assert_eq!(std::mem::take(&mut *runs.lock()), [401 * 8192]);
        model.split_rows();
        for mut model in [model.replica().unwrap(), model] {
            let outputs = model.run(std::slice::from_ref(&text)).unwrap();
            assert_eq!(std::mem::take(&mut *runs.lock()), [8192, 400 * STEP]);
            let firsts: Vec<f32> = outputs[0].as_f32().unwrap().iter().step_by(2).copied().collect();
            assert!(firsts[0] == 1.0 && firsts[1..].iter().all(|first| *first == 2.0) && firsts.len() == 401);
            assert_eq!(outputs[1].data()[..8], [0, 0x20, 0, 0, 1, 0, 0, 0], "the tokens of each row");
        }
    }

    #[test]
    fn long_row_does_not_lengthen_all_others() {
        let all = parts(std::iter::once(8192).chain(std::iter::repeat_n(4, 1023)));
        assert_eq!(all, [0..1, 1..1024]);
        assert_eq!(parts(std::iter::repeat_n(512, 300)), [0..128, 128..256, 256..300]);
        assert_eq!(parts([usize::MAX, usize::MAX].into_iter()), [0..1, 1..2]);
        assert_eq!(parts([1, 2].into_iter()), [Range { start: 0, end: 2 }]);
        assert_eq!(parts(std::iter::empty()), [Range { start: 0, end: 0 }]);
    }
}
