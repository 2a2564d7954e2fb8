//! Says for each file and engine whether the model loads and answers as without graph optimisation and as on the other
//! engine: the table of real models in docs/results/raw/onnx-coverage.txt.

#![allow(clippy::print_stdout)] // it is the result

use std::path::Path;

use parm_backend::engine::{Options, by_name, compare, guarded};

fn main() -> anyhow::Result<()> {
    let options = Options::default();
    for file in std::env::args().skip(1) {
        for name in ["tract", "ort"] {
            let engine = by_name(name, &options)?;
            let loaded = guarded(|| engine.load(Path::new(&file), &options));
            let outcome = loaded.and_then(|mut model| {
                let blank = model.signature().blank(1)?;
                let runs =
                    guarded(|| model.run(&blank)).map_or_else(|error| error.to_string(), |_| "runs".into());
                compare(&*engine, &mut *model, Path::new(&file), &options).map(|()| runs)
            });
            let said = outcome.unwrap_or_else(|error| error.to_string());
            println!("{file}\t{name}\t{}", said.chars().take(300).collect::<String>());
        }
    }
    Ok(())
}
