//! An 8-bit copy of the network, made from a few rows without labels.
//!
//! Convolutions and products with constant weights read and write 8-bit numbers; everything else stays as it is. The graph
//! says so with pairs of `QuantizeLinear` and `DequantizeLinear` (QDQ), which every engine can run and engines with
//! 8-bit kernels turn into these. Weights have a scale for each channel and are symmetric; values have one scale and a zero
//! point, and come as unsigned bytes, for which processors have instructions.
//!
//! What decides is the range of values that the 256 numbers stand for. Too wide, and all are rough; too narrow, and the
//! largest, which matter most, are cut. The extremes of the rows seen are too wide: on magika they cost three points of
//! agreement. A share of the values at either end is cut instead (percentile 99.99), and as the best share differs from
//! network to network, a few are tried on the calibration rows and the one is taken that moves the answers least; where there are
//! few values, for each of them by itself (two of magika's want shares ten times apart: worth a point). Where all that is read
//! of a value is its maximum, only the range of the maxima counts, so that is what is measured there.
//!
//! Processors without VNNI cut off sums of two products that do not fit into 16 bits: a residual network's copy agreed on 95 % of the
//! pictures where with it it agrees on 99.8. So weights of half the steps are tried too ([`Steps`]), and are taken where that brings
//! answers far nearer.
//!
//! Rejected: bringing each channel of which only maxima are read to the span that calibration rows show, which cuts what makes rare
//! rows differ (2.6 points on magika); ranges that minimise the squared error of each value, which take the range of maxima for noise; and ranges
//! for each channel of values, which engines have no kernels for.

mod correct;
mod parts;
mod points;
mod ranges;
mod tally;
mod weights;
mod write;

pub(crate) use correct::correct;
pub(crate) use parts::{Part, parts};
pub(crate) use ranges::{Cuts, Ranges, gather, measured};
pub(crate) use weights::Steps;
pub(crate) use write::{Scope, quantise};
