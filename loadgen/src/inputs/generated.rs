//! Requests generated from a model's metadata.
//!
//! The values are small and finite, and texts are a few words, so that no server is faster or slower because of unusual
//! values.

use bytes::Bytes;
use parm_protocol::{DataType, InferRequest, ModelMetadata, NamedTensor, Tensor, TensorMetadata};
use parm_random::Random;
use parm_workload::chat::word;

use crate::Error;

/// Distinct generated requests; enough that no cache between here and the model receives the same one twice in a row.
pub(super) const DISTINCT: usize = 16;

/// Separates these random numbers from all others under a seed.
const STREAM: u64 = 0x1297;

/// Most bytes of more requests than those.
const MOST_BYTES: usize = 64 << 20;

/// Most elements of an input. A server may declare any size.
const MOST_ELEMENTS: usize = 1 << 26;

/// Most texts of an input: a text is much longer than a number.
const MOST_TEXTS: usize = MOST_ELEMENTS / 32;

/// Generates requests of `rows` rows for a model: `wanted`, fewer if they are large, and at least [`DISTINCT`].
pub(super) fn requests(
    model: &ModelMetadata,
    rows: usize,
    seed: u64,
    wanted: usize,
) -> Result<Vec<InferRequest>, Error> {
    let mut random = Random::of(seed, [STREAM]);
    let mut one = || -> Result<InferRequest, Error> {
        let inputs = model.inputs.iter().map(|input| tensor(input, rows, &mut random));
        Ok(super::request(&model.name, inputs.collect::<Result<_, Error>>()?))
    };
    let mut requests = vec![one()?];
    let bytes: usize = requests[0].inputs.iter().map(|input| input.tensor.data().len()).sum();
    let count = wanted.min(MOST_BYTES / bytes.max(1)).max(DISTINCT);
    for _ in 1..count {
        requests.push(one()?);
    }
    Ok(requests)
}

fn tensor(input: &TensorMetadata, rows: usize, random: &mut Random) -> Result<NamedTensor, Error> {
    let datatype: DataType = input.datatype.parse()?;
    let mut shape: Vec<usize> = input.shape.iter().map(|&dim| usize::try_from(dim).unwrap_or(1)).collect();
    if input.shape.first() == Some(&-1) {
        shape[0] = rows;
    }
    let count = shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
    let limit = if datatype == DataType::Bytes { MOST_TEXTS } else { MOST_ELEMENTS };
    let count = count.filter(|count| *count <= limit);
    let too_large = || Error::TooLarge { name: input.name.clone(), rows, limit };
    let count = count.ok_or_else(too_large)?;
    let mut data = Vec::with_capacity(count * datatype.size().unwrap_or(1));
    for _ in 0..count {
        let value = random.unit() as f32;
        match datatype {
            DataType::Bool => data.push(u8::from(value < 0.5)),
            DataType::Bytes => text(&mut data, random),
            DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64 => {
                super::convert::write(&mut data, value.into(), datatype);
            }
            // Small whole numbers are valid in every integer type.
            _ => {
                super::convert::write(&mut data, (value * 100.0).floor().into(), datatype);
            }
        }
    }
    Ok(NamedTensor::new(&input.name, Tensor::new(datatype, shape, Bytes::from(data))?))
}

/// Appends a text of three to eight words.
fn text(data: &mut Vec<u8>, random: &mut Random) {
    let seed = random.bits();
    let words: Vec<&str> = (0..3 + random.below(6) as u32).map(|number| word(seed, number)).collect();
    let text = words.join(" ");
    data.extend_from_slice(&(text.len() as u32).to_le_bytes());
    data.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::Inputs;

    fn model(datatype: &str, shape: &[i64]) -> ModelMetadata {
        let input = TensorMetadata { name: "x".into(), datatype: datatype.into(), shape: shape.to_vec() };
        ModelMetadata { name: "m".into(), inputs: vec![input], ..ModelMetadata::default() }
    }

    #[test]
    fn requests_fit_the_model_and_repeat_for_a_seed() {
        for datatype in ["FP16", "BF16", "FP32", "FP64", "INT32", "INT64", "UINT8", "BOOL", "BYTES"] {
            let model = model(datatype, &[-1, 3, -1]);
            let inputs = Inputs::generate(&model, 4, 1).unwrap();
            let request = inputs.request(0);
            assert_eq!(request.inputs[0].tensor.shape(), [4, 3, 1]);
            assert_eq!(request, Inputs::generate(&model, 4, 1).unwrap().request(DISTINCT));
            assert_ne!(request, inputs.request(1));
        }
    }

    #[test]
    fn more_requests_are_generated_unless_they_are_large() {
        let count = |values: i64| {
            let inputs = Inputs::generate_many(&model("UINT8", &[-1, values]), 1, 1, 100).unwrap();
            let first = inputs.request(0);
            (1..).find(|index| inputs.request(*index) == first).unwrap()
        };
        assert_eq!(count(64), 100);
        assert_eq!(count(2 << 20), 32, "64 MiB");
    }

    #[test]
    fn input_of_absurd_size_or_unknown_datatype_is_rejected_when_generated() {
        let error = Inputs::generate(&model("COMPLEX64", &[-1]), 1, 1).unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{error}");
        for row in [&[i64::MAX, i64::MAX][..], &[MOST_ELEMENTS as i64]] {
            let model = model("UINT8", &[&[-1][..], row].concat());
            let error = Inputs::generate(&model, 2, 1).unwrap_err();
            assert_eq!(error, Error::TooLarge { name: "x".into(), rows: 2, limit: MOST_ELEMENTS });
        }
    }

    #[test]
    fn generated_texts_are_a_few_words_that_vary() {
        let request = Inputs::generate(&model("BYTES", &[-1, 1]), 8, 1).unwrap().request(0);
        let texts: Vec<String> = request.inputs[0]
            .tensor
            .strings()
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect();
        let is_short = |text: &String| {
            let words: Vec<&str> = text.split(' ').collect();
            (3..=8).contains(&words.len()) && words.iter().all(|word| word.len() == 3)
        };
        assert!(texts.len() == 8 && texts.iter().all(is_short), "{texts:?}");
        assert!(texts.windows(2).all(|pair| pair[0] != pair[1]), "{texts:?}");
    }
}
