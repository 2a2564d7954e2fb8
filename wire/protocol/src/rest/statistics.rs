//! Model statistics in the JSON shape that Triton's clients read.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::malformed;
use crate::{BatchStatistics, DurationStatistics, Error, ModelStatistics};

#[derive(Serialize, Deserialize)]
struct Document {
    model_stats: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    version: String,
    last_inference: u64,
    inference_count: u64,
    execution_count: u64,
    inference_stats: Inference,
    #[serde(default)]
    batch_stats: Vec<BatchStatistics>,
}

#[derive(Serialize, Deserialize)]
struct Inference {
    success: DurationStatistics,
    fail: DurationStatistics,
    queue: DurationStatistics,
    compute_input: DurationStatistics,
    compute_infer: DurationStatistics,
    compute_output: DurationStatistics,
}

/// The body of `GET /v2/models/M/stats`.
pub fn encode(statistics: Vec<ModelStatistics>) -> Bytes {
    let document = Document { model_stats: statistics.into_iter().map(Entry::from).collect() };
    Bytes::from(serde_json::to_vec(&document).unwrap_or_default())
}

/// Reads the body of `GET /v2/models/M/stats`.
pub fn decode(body: &[u8]) -> Result<Vec<ModelStatistics>, Error> {
    let document: Document =
        serde_json::from_slice(body).map_err(|error| malformed(format!("statistics: {error}")))?;
    Ok(document.model_stats.into_iter().map(ModelStatistics::from).collect())
}

impl From<ModelStatistics> for Entry {
    fn from(from: ModelStatistics) -> Self {
        Self {
            name: from.name,
            version: from.version,
            last_inference: from.last_inference_ms,
            inference_count: from.inference_count,
            execution_count: from.execution_count,
            inference_stats: Inference {
                success: from.success,
                fail: from.fail,
                queue: from.queue,
                compute_input: from.compute_input,
                compute_infer: from.compute_infer,
                compute_output: from.compute_output,
            },
            batch_stats: from.batch_stats,
        }
    }
}

impl From<Entry> for ModelStatistics {
    fn from(from: Entry) -> Self {
        Self {
            name: from.name,
            version: from.version,
            last_inference_ms: from.last_inference,
            inference_count: from.inference_count,
            execution_count: from.execution_count,
            success: from.inference_stats.success,
            fail: from.inference_stats.fail,
            queue: from.inference_stats.queue,
            compute_input: from.inference_stats.compute_input,
            compute_infer: from.inference_stats.compute_infer,
            compute_output: from.inference_stats.compute_output,
            batch_stats: from.batch_stats,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_survive_the_wire() {
        let duration = |count| DurationStatistics { count, ns: count * 1000 };
        let statistics = vec![ModelStatistics {
            name: "m".into(),
            version: "1".into(),
            last_inference_ms: 7,
            success: duration(1),
            fail: duration(2),
            queue: duration(3),
            batch_stats: vec![BatchStatistics { batch_size: 8, ..Default::default() }],
            ..Default::default()
        }];
        assert_eq!(decode(&encode(statistics.clone())), Ok(statistics));
    }
}
