// Figures of one model over a time span, for the sentence at the top, the tiles and the savings.

import { deepest, quantile, sum, total } from './histogram.js';

/** Outcomes without an answer, at the end of `hello.outcomes`. */
const UNANSWERED = ['rejected', 'failed'];

/** Sums up a model's data of several frames. */
export function summary(parts, hello) {
  const { outcomes, buckets, rejections, counts, roles } = hello;
  const by = outcomes.map((_, at) => sum(parts.map((part) => part.latency[at])));
  const of = Object.fromEntries(outcomes.map((name, at) => [name, total(by[at])]));
  const answers = outcomes.filter((name) => !UNANSWERED.includes(name));
  const all = sum(parts.flatMap((part) => part.latency.filter((_, at) => answers.includes(outcomes[at]))));
  const alone = sum(parts.map((part) => part.alone));
  const never = parts.reduce((sum, part) => sum + part.alone_unknown, 0);
  const answered = answers.reduce((sum, name) => sum + of[name], 0);
  const tail = deepest(answered);
  const latest = parts.at(-1);
  const added = (field, names) => Object.fromEntries(names.map((name, at) => [name, parts.reduce((sum, part) => sum + part[field][at], 0)]));
  const work = added('work_us', roles);
  const extra = roles.slice(1).reduce((sum, role) => sum + work[role], 0);
  return {
    of, answered, all, alone, never, tail, buckets, work, latest,
    lost: of.rejected + of.failed,
    approximate: answered ? (of.reconstructed + of['stand-in'] + of.backup + of.default) / answered : null,
    counts: added('counts', counts),
    rejections: added('rejections', rejections),
    extra: work.deployed ? extra / work.deployed : null,
    p50: quantile(all, 0.5, buckets),
    at: (share) => quantile(all, share, buckets),
    /** Without redundancy: of the queries' own predictions. Infinite if some never arrived. */
    without: (share) => quantile(alone, share, buckets, never),
    /** Estimate for hedges alone: the time after which a job is late, plus one more run. */
    hedge: latest?.late_us && latest.service_us ? latest.late_us + latest.service_us[0] : null,
  };
}
