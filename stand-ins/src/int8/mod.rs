//! 8-bit copies of a network, made from a few rows without labels.
//!
//! Convolutions and products with constant weights read and write 8-bit numbers; everything else stays. Pairs of
//! `QuantizeLinear` and `DequantizeLinear` (QDQ) express this in the graph: every engine can run them, and engines
//! with 8-bit kernels replace them. Weights are symmetric with a scale per channel; values have one scale and a zero
//! point, as unsigned bytes, for which processors have instructions.
//!
//! The range of values that the 256 numbers cover decides the accuracy. A wide range makes all values coarse, a
//! narrow one cuts the largest, which matter most. The extremes of the calibration rows are too wide: on magika they
//! cost three points of agreement. Instead a share of the values is cut at either end (percentile 99.99). The best
//! share differs between networks, so several are tried on the calibration rows, and the one with the smallest change
//! of the outputs is used; a graph with few values gets a share per value (two of magika's differ by a factor of ten:
//! worth one point). If only the maximum of a value is read, the range of the maxima is measured.
//!
//! Processors without VNNI saturate sums of two products at 16 bits: a residual network's copy agreed on 95 % of the
//! pictures there, and on 99.8 % with VNNI. Therefore weights with half the steps are tried too ([`Steps`]), and are
//! used if the outputs come far nearer.
//!
//! Rejected: scaling each channel of which only maxima are read to its span on calibration rows, which cuts the
//! values that set rare rows apart (2.6 points on magika); ranges with the smallest squared error per value, which
//! treat the range of maxima as noise; ranges per channel of values, for which engines have no kernels.

mod points;
mod ranges;
mod write;

pub(crate) use points::kinds;
pub(crate) use ranges::{Cuts, Ranges, gather, measured};
pub(crate) use write::{Steps, quantise};
