//! Prints the condition numbers and error gains of the built-in coefficients as a Markdown table.

use parm_encoder::coefficients::{DESIGNED_K, DESIGNED_R, conditioning, design};

#[allow(clippy::print_stdout)] // prints a table
fn main() {
    println!("| k | r | worst 2 x 2 | worst 3 x 3 | worst error gain |");
    println!("|---|---|---|---|---|");
    for k in 2..=DESIGNED_K {
        for r in 1..=DESIGNED_R {
            let Some(matrix) = design(k, r) else { continue };
            let found = conditioning(&matrix);
            let show =
                |size: usize| found.worst.get(size - 1).map_or("-".to_owned(), |worst| format!("{worst:.1}"));
            println!("| {k} | {r} | {} | {} | {:.1} |", show(2), show(3), found.gain);
        }
    }
}
