//! External weights of a model in memory.
//!
//! ONNX Runtime maps external files for as long as it has the model. A file that is then overwritten or truncated in place, as by
//! `cp`, changes the weights of a model in service or ends the process (SIGBUS). So they are read first; the library copies
//! them.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use parm_parity_models::onnx::{is_inside, locations};

/// The external files of a model by their names in it. Those that cannot be read are left to the library, which gives the
/// error.
pub(super) fn external(path: &Path) -> Vec<(String, Arc<[u8]>)> {
    let files = locations(path).unwrap_or_default().into_iter().filter(|name| is_inside(name));
    let with_bytes = |name: String| read(&path.with_file_name(&name)).map(|bytes| (name, bytes));
    files.filter_map(with_bytes).collect()
}

fn read(path: &Path) -> Option<Arc<[u8]>> {
    let mut file = File::open(path).ok()?;
    let size = usize::try_from(file.metadata().ok().filter(std::fs::Metadata::is_file)?.len()).ok()?;
    // One allocation: these files may have gigabytes.
    let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
    file.read_exact(Arc::get_mut(&mut bytes)?).ok()?;
    Some(bytes)
}
