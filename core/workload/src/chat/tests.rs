//! Continuous batching against times computed by hand, and against the queue M/D/1.

use super::*;
use crate::arrivals::Arrivals;
use crate::clock::Moment;

const MS: f64 = 1e6;

fn tokens(prompt: u32, output: u32) -> Tokens {
    Tokens { prompt, output }
}

/// The milliseconds at which each request got its first and its last token. Requests arrive at these milliseconds.
fn served(costs: Costs, requests: &[(f64, Tokens)]) -> Vec<(f64, f64)> {
    let mut batch = Batch::new(costs);
    let mut times = vec![(f64::NAN, f64::NAN); requests.len()];
    let (mut now, mut next) = (Moment::START, 0);
    let arrival = |number: usize| Moment::START.later(requests[number].0 * MS);
    let mut advances = Vec::new();
    loop {
        while next < requests.len() && arrival(next) <= now {
            batch.arrive(next as u64, requests[next].1);
            next += 1;
        }
        match batch.begin() {
            None if next == requests.len() => return times,
            None => now = arrival(next),
            Some(nanos) => {
                now = now.later(nanos);
                batch.end(&mut advances);
                let ms = now.as_nanos() as f64 / MS;
                for Advance { id, .. } in advances.drain(..) {
                    let (first, last) = &mut times[id as usize];
                    *first = if first.is_nan() { ms } else { *first };
                    *last = ms;
                }
            }
        }
    }
}

fn near(got: &[(f64, f64)], wanted: &[(f64, f64)]) {
    let close = |a: f64, b: f64| (a - b).abs() < 1e-3;
    let fine = got.iter().zip(wanted).all(|(a, b)| close(a.0, b.0) && close(a.1, b.1));
    assert!(got.len() == wanted.len() && fine, "{got:?}, expected {wanted:?}");
}

#[test]
fn one_request_takes_its_chunks_and_then_a_token_per_iteration() {
    // 1,100 tokens are chunks of 512, 512 and 76: 69.2 + 69.2 + 25.6 ms. Each further token takes 18.3 ms.
    let got = served(Costs::default(), &[(5.0, tokens(1100, 4))]);
    near(&got, &[(169.0, 169.0 + 3.0 * 18.3)]);
    near(&served(Costs::default(), &[(0.0, tokens(0, 1))]), &[(18.1, 18.1)]);
}

#[test]
fn prompt_is_read_next_to_decoding_streams() {
    // The second request arrives in the first iteration (28 ms) and is read in the second one: 18 + 0.3 + 20 ms.
    let got = served(Costs::default(), &[(0.0, tokens(100, 3)), (1.0, tokens(200, 2))]);
    let second = 28.0 + 38.3;
    near(&got, &[(28.0, second + 18.6), (second, second + 18.6)]);
}

#[test]
fn prompts_share_a_chunk_in_order_of_arrival() {
    // 300 and 212 tokens of the second fit into the first chunk, its other 88 and the third into the next.
    let requests = [(0.0, tokens(300, 1)), (0.0, tokens(300, 1)), (0.0, tokens(10, 1))];
    let first = 18.0 + 51.2;
    let second = first + 18.0 + 9.8;
    near(&served(Costs::default(), &requests), &[(first, first), (second, second), (second, second)]);
}

#[test]
fn requests_wait_while_all_streams_run() {
    let costs = Costs { streams: 2, ..Costs::default() };
    let requests = [(0.0, tokens(10, 2)), (0.0, tokens(10, 4)), (0.0, tokens(10, 1))];
    // Two are read in 20 ms and decode in 18.6 ms; then the first has ended, and the third is read next to the second.
    let third = 20.0 + 18.6 + 18.0 + 0.3 + 1.0;
    let got = served(costs, &requests);
    near(&got, &[(20.0, 38.6), (20.0, third + 18.3), (third, third)]);
}

#[test]
fn request_that_leaves_frees_its_place_at_once() {
    let mut batch = Batch::new(Costs { streams: 1, ..Costs::default() });
    (0..3).for_each(|id| batch.arrive(id, tokens(10, 100)));
    assert!(batch.begin().is_some());
    assert_eq!((batch.running(), batch.waiting()), (1, 2));
    assert!(batch.leave(0) && batch.leave(1) && !batch.leave(1));
    let mut advances = Vec::new();
    batch.end(&mut advances);
    assert_eq!(advances, [], "a request that left gets no token");
    assert!(batch.begin().is_some());
    assert_eq!((batch.running(), batch.waiting()), (1, 0));
    assert!(batch.leave(2));
    assert_eq!(batch.begin(), None);
}

#[test]
fn prompts_of_one_chunk_wait_as_in_the_queue_m_d_1() {
    // A prompt of a whole chunk and one token of answer make each iteration serve one request, in 69.2 ms.
    let service = 69.2f64;
    for load in [0.3, 0.6, 0.8] {
        let times = Arrivals::Poisson { rate: load / service * 1e3 }.schedule(11).unwrap();
        let requests: Vec<(f64, Tokens)> =
            times.take(200_000).map(|at| (at.as_secs_f64() * 1e3, tokens(512, 1))).collect();
        let got = served(Costs::default(), &requests);
        let waits = got.iter().zip(&requests).map(|((first, _), (at, _))| first - at - service);
        let mean = waits.sum::<f64>() / requests.len() as f64;
        let expected = load * service / (2.0 * (1.0 - load));
        assert!((mean / expected - 1.0).abs() < 0.04, "load {load}: {mean} ms, expected {expected}");
    }
}

#[test]
fn costs_without_a_chunk_or_with_bad_times_are_rejected() {
    let usual = Costs::default();
    assert_eq!(usual.check(), Ok(()));
    for bad in [
        Costs { chunk: 0, ..usual },
        Costs { streams: 0, ..usual },
        Costs { base_ms: f64::NAN, ..usual },
        Costs { stream_ms: -1.0, ..usual },
        Costs { prompt_token_ms: 1e9, ..usual },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}
