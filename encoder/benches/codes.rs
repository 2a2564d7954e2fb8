//! Encoding and decoding speed compared with the machine's streaming rate, measured in the same run.
//!
//! The streaming rate is that of a copy between buffers of the same sizes: bytes read and written, divided by the
//! median time. An encoder of k queries must read k and write one. Samples of the copy and of the codes alternate, so
//! that other load slows both.

#![allow(clippy::print_stdout)] // prints a report

use std::hint::black_box;
use std::time::{Duration, Instant};

use parm_encoder::guard::Guard;
use parm_encoder::{Code, CodeSpec, Input, Kind, Members, Received, Set, Workspace};

const DIMS: [usize; 3] = [3, 224, 224];
const ELEMENTS: usize = 3 * 224 * 224;
const OUTPUTS: usize = 1000;
const SAMPLES: usize = 400;

fn main() {
    println!("encode, {ELEMENTS} floats a query, median of {SAMPLES}");
    println!("| code | k | r | us | GB/s | share of the streaming rate |");
    println!("|---|---|---|---|---|---|");
    for (kind, r) in [(Kind::Sum, 1), (Kind::Weighted, 2), (Kind::Tiles, 1), (Kind::Slots, 1)] {
        for k in [2, 3, 4] {
            encode(&CodeSpec::new(kind, k, r));
        }
    }
    println!("\nencode of 784 floats and decode of {OUTPUTS} outputs, median of {SAMPLES} batches of 100");
    println!("| code | k | r | encode us | decode us |");
    println!("|---|---|---|---|---|");
    for (kind, r) in [(Kind::Sum, 1), (Kind::Weighted, 2), (Kind::Slots, 1), (Kind::Mds, 2)] {
        for k in [2, 3, 4, 8] {
            small(&CodeSpec::new(kind, k, r));
        }
    }
    guard();
}

fn encode(spec: &CodeSpec) {
    let code = spec.build().expect("valid");
    let queries: Vec<Vec<f32>> = (0..spec.k).map(|slot| vec![slot as f32 + 0.5; ELEMENTS]).collect();
    let slices: Vec<Option<&[f32]>> = queries.iter().map(|query| Some(query.as_slice())).collect();
    let members = Members { input: Input::floats(&DIMS), queries: &slices };
    let mut parities = vec![vec![0.0_f32; ELEMENTS * code.query_scale()]; spec.r];
    let moved = (spec.k + spec.r * code.query_scale()) * ELEMENTS * 4;
    let from = vec![1.0_f32; moved / 8];
    let mut to = vec![0.0_f32; moved / 8];
    let mut workspace = Workspace::new();
    let mut outs: Vec<&mut [f32]> = parities.iter_mut().map(Vec::as_mut_slice).collect();
    let (mut copies, mut encodes) = (Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        copies.push(timed(|| black_box(&mut to).copy_from_slice(black_box(&from))));
        encodes.push(timed(|| {
            code.encode(black_box(members), black_box(&mut outs), &mut workspace).expect("encodes")
        }));
    }
    let (copy, encode) = (median(copies), median(encodes));
    println!(
        "| {} | {} | {} | {:.1} | {:.1} | {:.0} % |",
        spec.kind,
        spec.k,
        spec.r,
        encode * 1e6,
        moved as f64 / encode / 1e9,
        100.0 * copy / encode
    );
}

fn small(spec: &CodeSpec) {
    let code = spec.build().expect("valid");
    let mut workspace = Workspace::new();
    let query = vec![0.5_f32; 784];
    let queries = vec![Some(query.as_slice()); spec.k];
    let members = Members { input: Input::floats(&[784]), queries: &queries };
    let mut parities = vec![vec![0.0_f32; 784 * code.query_scale()]; spec.r];
    let mut outs: Vec<&mut [f32]> = parities.iter_mut().map(Vec::as_mut_slice).collect();
    let encode = batches(|| code.encode(black_box(members), &mut outs, &mut workspace).expect("encodes"));
    println!(
        "| {} | {} | {} | {:.2} | {:.2} |",
        spec.kind,
        spec.k,
        spec.r,
        encode * 1e6,
        decode(code.as_ref(), spec) * 1e6
    );
}

fn decode(code: &dyn Code, spec: &CodeSpec) -> f64 {
    let mut workspace = Workspace::new();
    let outputs = vec![vec![0.5_f32; OUTPUTS]; spec.k];
    let parities = vec![vec![1.5_f32; OUTPUTS * code.output_scale()]; spec.r];
    let predictions: Vec<Option<&[f32]>> =
        outputs.iter().enumerate().map(|(slot, output)| (slot > 0).then_some(output.as_slice())).collect();
    let parities: Vec<Option<&[f32]>> = parities.iter().map(|output| Some(output.as_slice())).collect();
    let received = Received { members: Set::first(spec.k), predictions: &predictions, parities: &parities };
    let mut out = vec![0.0_f32; OUTPUTS];
    batches(|| code.decode(black_box(received), 0, black_box(&mut out), &mut workspace).expect("decodes"))
}

fn guard() {
    let query = vec![0.5_f32; ELEMENTS];
    let guard = Guard::around(-3.0, 3.0, 1.0);
    let checks =
        (0..SAMPLES).map(|_| timed(|| assert!(black_box(guard).passes(black_box(&query))))).collect();
    let check = median(checks);
    println!(
        "\nguard of {ELEMENTS} floats: {:.1} us, {:.1} GB/s read",
        check * 1e6,
        ELEMENTS as f64 * 4.0 / check / 1e9
    );
}

fn batches(mut work: impl FnMut()) -> f64 {
    let samples = (0..SAMPLES).map(|_| timed(|| (0..100).for_each(|_| work()))).collect();
    median(samples) / 100.0
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(mut samples: Vec<Duration>) -> f64 {
    samples.sort_unstable();
    samples[samples.len() / 2].as_secs_f64()
}
