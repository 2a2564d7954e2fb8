//! The size of a tokenizer's table of replaced characters, checked before the table is read.
//!
//! The tokenizer's library reserves the memory that such a table claims for its index: up to 8 GiB for a file of a few
//! bytes. If the memory is not available, the process ends.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

/// `tokenizer.json`, as far as it is checked.
#[derive(Deserialize)]
struct TokenizerFile {
    normalizer: Option<Value>,
}

/// Characters that have the claim, the first four bytes.
const HEAD: usize = 8;

/// Returns an error if a table of this `tokenizer.json` claims a longer index than it has.
pub(super) fn check(file: &str) -> Result<(), String> {
    // The library reports a file that cannot be read.
    let Ok(TokenizerFile { normalizer: Some(normalizer) }) = serde_json::from_str(file) else {
        return Ok(());
    };
    tables(&normalizer).try_for_each(|table| {
        // The library takes base64 with and without padding.
        let table = table.trim_end_matches('=').as_bytes();
        let head = BASE64_STANDARD_NO_PAD.decode(&table[..table.len().min(HEAD)]).unwrap_or_default();
        let Some(claim) = head.first_chunk() else { return Ok(()) };
        let (claimed, left) = (u32::from_le_bytes(*claim), table.len() * 3 / 4 - claim.len());
        if claimed as usize <= left {
            return Ok(());
        }
        Err(format!(
            "its precompiled_charsmap claims an index of {claimed} bytes and has {left}: export it again"
        ))
    })
}

/// The tables of a normalizer and of those in it.
fn tables(normalizer: &Value) -> Box<dyn Iterator<Item = &str> + '_> {
    let own = normalizer.get("precompiled_charsmap").and_then(Value::as_str);
    let inner = normalizer.get("normalizers").and_then(Value::as_array);
    Box::new(own.into_iter().chain(inner.into_iter().flatten().flat_map(tables)))
}
