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
