//! Models with a tokenizer next to them take texts.

use std::fs;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parm_backend::EngineConfig;
use parm_backend::engine::{Texts, by_name};
use parm_parity_models::onnx::{Attribute, Builder, DataType, Dim, Limits, Model, Tensor as Weights, Value};
use parm_protocol::{
    DataType as Type, InferRequest, InferenceService, ModelRef, NamedTensor, Parameters, Tensor,
};

use crate::support::{Served, of_folder, put, values};

/// Words are split at spaces. Numbers are those of [`VECTORS`].
const TOKENIZER: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": { "type": "Whitespace" },
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{ "Sequence": { "id": "A", "type_id": 0 } }],
        "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
        "special_tokens": {}
    },
    "decoder": null,
    "model": {
        "type": "WordLevel", "unk_token": "[UNK]", "vocab": { "[UNK]": 0, "[PAD]": 1, "red": 2, "green": 3, "blue": 4 }
    }
}"#;

/// Vectors of unknown words, padding, "red", "green" and "blue".
const VECTORS: [[f32; 2]; 5] = [[9.0, 9.0], [100.0, 100.0], [1.0, 0.0], [0.0, 1.0], [3.0, 5.0]];

fn of_tokens(name: &str) -> Value {
    let shape = ["batch", "tokens"].map(|name| Dim::Symbol(name.into()));
    Value { name: name.into(), datatype: DataType::Int64, shape: Some(shape.into()) }
}

fn floats(name: String, dims: &[&str]) -> Value {
    let dim = |dim: &&str| dim.parse().map_or_else(|_| Dim::Symbol((*dim).into()), Dim::Fixed);
    Value { name, datatype: DataType::Float, shape: Some(dims.iter().map(dim).collect()) }
}

/// A graph that looks each token up, and gives a vector for each token, or the number of tokens of the second text.
fn graph(scores: bool) -> Vec<u8> {
    let mut graph = Builder::new("encoder", 1);
    let ids = graph.input(of_tokens("input_ids"));
    let mask = graph.input(of_tokens("attention_mask"));
    if scores {
        let kinds = graph.input(of_tokens("token_type_ids"));
        let seen = graph.node("Mul", "seen", &[&kinds, &mask]);
        let as_float = [("to", Attribute::Int(1))];
        let seen = graph.node_with("Cast", "float", &[&seen], as_float);
        let sum = [("axes", Attribute::Ints(vec![1])), ("keepdims", Attribute::Int(1))];
        let zeros = graph.node("Sub", "zeros", &[&ids, &ids]);
        let zeros = graph.node_with("Cast", "zeros_float", &[&zeros], [("to", Attribute::Int(1))]);
        let seen = graph.node("Add", "all", &[&seen, &zeros]);
        let score = graph.node_with("ReduceMax", "score", &[&seen], sum);
        graph.output(floats(score, &["batch", "1"]));
    } else {
        let table = graph.constant(Weights::from_f32("table", &[5, 2], &VECTORS.concat()).unwrap());
        let looked_up = graph.node("Gather", "lookup", &[&table, &ids]);
        let axis = [("axes", Attribute::Ints(vec![2]))];
        let mask = graph.node_with("Cast", "mask", &[&mask], [("to", Attribute::Int(1))]);
        let mask = graph.node_with("Unsqueeze", "wide", &[&mask], axis);
        let zeros = graph.node("Sub", "zeros", &[&mask, &mask]);
        let hidden = graph.node("Add", "last_hidden_state", &[&looked_up, &zeros]);
        graph.output(floats(hidden, &["batch", "tokens", "2"]));
    }
    graph.opset(11).build().unwrap().bytes().to_vec()
}

/// The files next to a model.
type Beside<'a> = &'a [(&'a str, &'a str)];

const PLAIN: Beside<'static> = &[("tokenizer.json", TOKENIZER)];
/// With the vector of the first token.
const FIRST: Beside<'static> =
    &[PLAIN[0], ("1_Pooling/config.json", r#"{ "pooling_mode_cls_token": true }"#)];

/// Serves these models: their names, whether they score pairs, and the files next to them.
fn serve(models: &[(&str, bool, Beside<'_>)]) -> (tempfile::TempDir, Served) {
    let folder = tempfile::tempdir().unwrap();
    models.iter().for_each(|(name, scores, beside)| put(folder.path(), name, 1, &graph(*scores), beside));
    let served = Served::start(of_folder(folder.path()));
    (folder, served)
}

fn request(model: &str, in_row: usize, texts: &[&str]) -> InferRequest {
    let data: Vec<u8> = texts
        .iter()
        .flat_map(|text| (text.len() as u32).to_le_bytes().into_iter().chain(text.bytes()))
        .collect();
    let tensor = Tensor::new(Type::Bytes, [texts.len() / in_row, in_row].as_slice(), data.into()).unwrap();
    InferRequest {
        model: ModelRef::latest(model),
        id: String::new(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("text", tensor)],
        outputs: vec![],
    }
}

#[tokio::test]
async fn vector_of_a_text_is_the_mean_of_its_tokens() {
    let (_folder, served) = serve(&[("encoder", false, PLAIN)]);
    let metadata = served.worker.model_metadata(&ModelRef::latest("encoder")).unwrap();
    assert_eq!((metadata.inputs.len(), &metadata.inputs[0].name[..]), (1, "text"));
    assert_eq!((&metadata.inputs[0].shape[..], &metadata.outputs[0].shape[..]), (&[-1, 1][..], &[-1, 2][..]));
    let config = served.worker.model_config(&ModelRef::latest("encoder")).unwrap();
    assert!(config.max_batch_size > 1, "texts of a request are rows: {:?}", config.unbatched());
    let long = ["red"; 40].join(" ");
    let texts = ["red", "red blue", "pink", &long];
    let together = served.infer(request("encoder", 1, &texts)).await.unwrap();
    assert_eq!(values(&together), [1.0, 0.0, 2.0, 2.5, 9.0, 9.0, 1.0, 0.0]);
}

#[tokio::test]
async fn files_beside_the_model_set_length_and_pooling() {
    let short = [PLAIN[0], ("tokenizer_config.json", r#"{ "model_max_length": 2 }"#)];
    let (_folder, served) = serve(&[("short", false, &short), ("first", false, FIRST)]);
    let answer = async |model| values(&served.infer(request(model, 1, &["red green blue"])).await.unwrap());
    assert_eq!(answer("short").await, [0.5, 0.5], "cut after two tokens");
    assert_eq!(answer("first").await, [1.0, 0.0], "that of the first token");
}

#[tokio::test]
async fn graph_with_its_pooling_answers_as_the_text_model() {
    let (folder, served) = serve(&[("mean", false, PLAIN), ("first", false, FIRST)]);
    let words = ["red green blue", "blue", "green blue pink"];
    let lines = words.map(String::from);
    for model in ["mean", "first"] {
        let path = folder.path().join(model).join("1/model.onnx");
        let texts = Texts::beside(&path).unwrap().unwrap();
        let pooled = texts.pooled(&Model::open(&path, &Limits::default()).unwrap()).unwrap();
        let beside = folder.path().join("pooled.onnx");
        fs::write(&beside, pooled.bytes()).unwrap();
        let config = EngineConfig::default();
        let mut graph = by_name("tract", &config).unwrap().load(&beside, &config).unwrap();
        let tokens = texts.tokens(graph.signature(), &lines).unwrap();
        let vectors = graph.run(&tokens).unwrap()[0].as_f32().unwrap().into_owned();
        assert_eq!(vectors, values(&served.infer(request(model, 1, &words)).await.unwrap()), "{model}");
    }
}

#[tokio::test]
async fn graph_with_one_score_takes_pairs() {
    let (_folder, served) = serve(&[("scorer", true, PLAIN)]);
    let metadata = served.worker.model_metadata(&ModelRef::latest("scorer")).unwrap();
    assert_eq!(metadata.inputs[0].shape, [-1, 2]);
    let pairs = ["red", "blue", "red", ""];
    let scores = served.infer(request("scorer", 2, &pairs)).await.unwrap();
    assert_eq!(values(&scores), [1.0, 0.0], "whether the second text has a token");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_errors() {
    let most = r#"{ "word_embedding_dimension": 2, "pooling_mode_max_tokens": true }"#;
    let most = [PLAIN[0], ("1_Pooling/config.json", most)];
    for (beside, reason) in [
        (&most[..], "pooling by max_tokens: export the model"),
        (&[("tokenizer.json", "{}")], "tokenizer.json"),
    ] {
        let (_folder, served) = serve(&[("encoder", false, beside)]);
        let index = served.worker.repository_index(false).unwrap();
        assert!(index[0].reason.contains(reason), "{index:?}");
    }
}

/// Reading this file ends in a panic of the tokenizer's library.
fn hostile() -> String {
    let normalizer = r#""normalizer": { "type": "Precompiled", "precompiled_charsmap": "AAAAAA==" }"#;
    let token = r#"[{ "id": 5, "content": "pink", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": true, "special": false }]"#;
    TOKENIZER
        .replace(r#""normalizer": null"#, normalizer)
        .replace(r#""added_tokens": []"#, &format!(r#""added_tokens": {token}"#))
}

/// Reading these files without a check reserves 4 and 8 GiB.
#[tokio::test]
async fn tokenizer_that_claims_gigabytes_is_an_error() {
    let table = |claimed: u32| {
        let table = BASE64_STANDARD.encode([&claimed.to_le_bytes()[..], b"abc"].concat());
        format!(r#"{{ "type": "Precompiled", "precompiled_charsmap": "{table}" }}"#)
    };
    for (claimed, normalizer) in [
        (1 << 31, table(1 << 31)),
        (u32::MAX, format!(r#"{{ "type": "Sequence", "normalizers": [{}] }}"#, table(u32::MAX))),
    ] {
        let file = TOKENIZER.replace(r#""normalizer": null"#, &format!(r#""normalizer": {normalizer}"#));
        let (_folder, served) = serve(&[("encoder", false, &[("tokenizer.json", &file)])]);
        let reason = served.worker.repository_index(false).unwrap().remove(0).reason;
        assert!(reason.contains(&format!("claims an index of {claimed} bytes and has 3")), "{reason}");
    }
}

#[tokio::test]
async fn tokenizer_that_panics_hides_no_other_model() {
    let hostile = hostile();
    let (_folder, served) =
        serve(&[("broken", false, &[("tokenizer.json", &hostile)]), ("good", false, PLAIN)]);
    let index = served.worker.repository_index(false).unwrap();
    let broken = index.iter().find(|model| model.name == "broken").unwrap();
    assert!(
        broken.reason.contains("panicked") || broken.reason.contains("index out of bounds"),
        "{broken:?}"
    );
    assert_eq!(values(&served.infer(request("good", 1, &["red"])).await.unwrap()), [1.0, 0.0]);
}
