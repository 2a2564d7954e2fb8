// Validates lines of the stream against CONTRACT.md. Invalid lines (another version, or corrupted) are dropped and counted:
// otherwise a single field would stop the whole page, or show as NaN.

/** More than any count or time, but still a number that can be summed. */
const MOST = 1e15;
/** Last bucket of a histogram, and limits of a group. */
const [BUCKETS, GROUP] = [400, 255];

const number = (is) => Number.isFinite(is) && Math.abs(is) <= MOST;
const positive = (is) => number(is) && is > 0;
const whole = (most) => (is) => Number.isInteger(is) && is >= 0 && is <= most;
const count = whole(MOST);
const some = (is) => count(is) && is > 0;
const text = (is) => typeof is === 'string';
const or = (check) => (is) => is === null || check(is);
const list = (check, least = 0) => (is) => Array.isArray(is) && is.length >= least && is.every(check);
const tuple = (...checks) => (is) => Array.isArray(is) && checks.every((check, at) => check(is[at]));
const fields = (checks) => (is) => is !== null && typeof is === 'object' && Object.entries(checks).every(([name, check]) => check(is[name]));

const histogram = (is) => Array.isArray(is) && is.length % 2 === 0 && is.every((value, at) => (at % 2 ? count : whole(BUCKETS))(value));
const pair = or(tuple(number, number));
const open = (is) => tuple(whole(GROUP), whole(GROUP), number)(is) && is[1] <= is[0];
const groups = or(fields({ open: list(open), made: list(tuple(count, count)) }));

const part = ({ outcomes, counts, rejections, roles }) => fields({
  m: count, latency: list(histogram, outcomes.length), alone: histogram, alone_unknown: count, rejections: list(count, rejections.length), counts: list(count, counts.length),
  work_us: list(count, roles.length), queue: list(count, 6), queue_limit: count, busy: or(number), service_us: or(tuple(number, number)), late_us: or(number), objective_us: pair,
  budgets: tuple(pair, pair), approximate: or(tuple(number, number, positive)), agreement: or(number), groups,
});
const named = (names) => (is) => list(text)(is) && names.split(' ').every((name) => is.includes(name));
/** Names by which the page looks up figures. */
const OUTCOMES = 'exact hedged reconstructed stand-in backup default rejected failed';
const COUNTS = `arrived batches batch_rows hedges hedges_won hedges_refused explored retries retries_refused groups groups_partial groups_dissolved parities parities_late reconstructions_served
reconstructions_unsure stand_ins_late stand_ins_served`.replace('\n', ' ');
const COLUMNS = 'number state reason inflight slots jobs failures p50_us p99_us slowness oldest_ms agreed compared retry_in_ms slower';
const known = new Set(COLUMNS.split(' ').slice(0, 7));
const row = ({ columns, states, reasons }) => {
  const cells = columns.map((column) => ({ state: whole(states.length - 1), reason: whole(reasons.length - 1) })[column] ?? (known.has(column) ? count : or(number)));
  return tuple(...cells);
};

const LINES = {
  hello: () => fields({ at: count, started_at: count, version: text, interval_ms: some, history_s: some, outcomes: named(OUTCOMES), roles: named('deployed'), counts: named(COUNTS), rejections: list(text),
    columns: named(COLUMNS), states: list(text), reasons: list(or(text)), policies: list(text), buckets: fields({ first_us: positive, per_octave: positive }),
    bounds: fields({ instances: count, events: some, node_slow_factor: positive }) }),
  models: () => list(fields({ m: count, name: text, version: text, policy: text, in_force: text, revision: count, stand_in: or(text), problem: or(text) })),
  instances: () => list(fields({ number: count, address: text, node: or(text), models: list(count), problem: or(text) })),
  events: () => list(fields({ at: count, kind: text, instance: or(count), m: or(count), text, by: or(text) })),
  past: (hello) => fields({ at: count, over_ms: positive, models: list(part(hello)) }),
  frame: (hello) => fields({ at: count, over_ms: positive, models: list(part(hello)), instances: list(row(hello)) }),
  dropped: () => count,
};

/** `[kind, sound]`: unknown kinds are accepted, as more may be added. */
export function sound(line, hello) {
  const [kind] = line !== null && typeof line === 'object' ? Object.keys(line) : [];
  if (!Object.hasOwn(LINES, kind ?? '')) return [kind, kind !== undefined];
  return [kind, (kind === 'hello' || hello !== null) && LINES[kind](hello)(line[kind])];
}
