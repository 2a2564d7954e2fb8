//! Cells and products for tests.

use std::collections::BTreeMap;

use parm_grids::{Cell, Product, key};

/// Cell number `number`.
pub(crate) fn cell(number: u32) -> Cell {
    let inputs = BTreeMap::from([("settings".to_owned(), parm_grids::digest(&number.to_le_bytes()))]);
    let (name, group) = (format!("cell {number}"), String::new());
    Cell { key: key(&number.to_le_bytes()), name, group, estimate_s: 1.0, inputs }
}

/// A product with this number as its result.
pub(crate) fn product(result: u32) -> Product {
    Product { result: result.to_string(), timings: "{}".into(), took_ms: 1 }
}

/// The bytes of a result file as another version of the program would have written them.
pub(crate) fn sealed(bytes: &[u8], version: &str) -> Vec<u8> {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct File {
        key: String,
        grid: String,
        name: String,
        version: String,
        holder: String,
        took_ms: u64,
        inputs: BTreeMap<String, String>,
        timings: Box<serde_json::value::RawValue>,
        result: Box<serde_json::value::RawValue>,
        digest: String,
    }
    let mut file = File { version: version.into(), ..serde_json::from_slice(bytes).unwrap() };
    let File { key, grid, name, version, holder, took_ms, inputs, timings, result, .. } = &file;
    let content = (key, grid, name, version, holder, took_ms, inputs, timings, result);
    file.digest = parm_grids::digest(&serde_json::to_vec(&content).unwrap());
    serde_json::to_vec(&file).unwrap()
}
