// Histograms of times as in the stream: bucket, count, bucket, count, ... They can be summed, so quantiles over any
// time span are those of its queries; quantiles themselves cannot be averaged.

/** Sum of such lists, as a map of bucket to count. */
export function sum(lists) {
  const all = new Map();
  for (const list of lists) {
    for (let at = 0; at + 1 < list.length; at += 2) all.set(list[at], (all.get(list[at]) ?? 0) + list[at + 1]);
  }
  return new Map([...all].sort((a, b) => a[0] - b[0]));
}

export function total(histogram) {
  let count = 0;
  for (const more of histogram.values()) count += more;
  return count;
}

/** Lower bound of a bucket, in microseconds. */
export function edge(bucket, { first_us, per_octave }) {
  return first_us * 2 ** (bucket / per_octave);
}

/**
 * The quantile of a fraction of queries, interpolated within its bucket. `never` more queries have no time: the quantile is
 * infinite if it falls among them. `null` without queries.
 */
export function quantile(histogram, share, buckets, never = 0) {
  const all = total(histogram) + never;
  if (!all) return null;
  const rank = Math.max(share * all, Number.MIN_VALUE);
  let below = 0;
  for (const [bucket, count] of histogram) {
    if (below + count >= rank) return edge(bucket + (rank - below) / count, buckets);
    below += count;
  }
  return Infinity;
}

/** Number of queries slower than a time. */
export function slower(histogram, us, buckets) {
  let count = 0;
  for (const [bucket, more] of histogram) if (edge(bucket + 0.5, buckets) > us) count += more;
  return count;
}

/** The highest quantile with at least five of so many queries beyond it. */
export function deepest(count) {
  return [0.999, 0.99, 0.9].find((share) => count * (1 - share) >= 5 - 1e-9) ?? null;
}

export const NAMES = new Map([[0.5, 'p50'], [0.9, 'p90'], [0.99, 'p99'], [0.999, 'p99.9']]);
