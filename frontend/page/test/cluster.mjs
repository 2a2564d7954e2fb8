// A simulated cluster: queries, stragglers, a slow node, ejections, and the resulting latencies. Each second draws
// all its queries, so that the figures shown together are consistent. Random numbers are seeded.

const COUNTS = ['arrived', 'cancelled', 'given_up', 'jobs', 'batches', 'batch_rows', 'dropped', 'hedges', 'hedges_refused', 'hedges_won', 'explored', 'groups', 'groups_partial',
  'groups_dissolved', 'parities', 'parities_unsent', 'parities_late', 'reconstructions', 'reconstructions_served',
  'reconstructions_unsure', 'backups_served', 'stand_ins_late', 'stand_ins_served', 'outages', 'stand_ins_outage',
  'stand_ins_unsure', 'stand_ins_over_bound', 'stand_ins_wasted', 'retries', 'retries_refused', 'compared',
  'disagreed', 'suspected', 'ejected_wrong', 'ejected_failing', 'ejected_silent', 'ejections_refused'];
export const OUTCOMES = ['exact', 'hedged', 'reconstructed', 'stand-in', 'backup', 'default', 'rejected', 'failed'];
const STATES = ['connecting', 'ready', 'draining', 'ejected', 'refused'];
const REASONS = [null, 'slow', 'silent', 'failing', 'unreachable', 'flapping', 'wrong', 'order'];
const COLUMNS = ['number', 'state', 'reason', 'inflight', 'slots', 'jobs', 'failures', 'p50_us', 'p99_us', 'slowness', 'oldest_ms',
  'agreed', 'compared', 'retry_in_ms', 'slower'];
const BUCKETS = { first_us: 64, per_octave: 16 };
const EVENTS = 200;
const BURSTS = { retry: 100, hedge: 10 };

export function settings(changes = {}) {
  const of = {
    policy: 'hedge', queue_limit: 1024, batch: { max_size: 1 }, max_attempts: 3,
    hedge: { budget: { ratio: 0.1 }, min_delay_us: 1000 }, replicate: { copies: 2 },
    coding: { k: 2, k_choices: [], r: 1, grace: { factor: 1.25 }, min_confidence: 0 },
    stand_in: { late_factor: 1.15, bound: 0.05, hedge: true, min_confidence: 0, agreement: { floor: 0.8 } },
    ejection: { enabled: true },
    no_instance_grace_ms: 1000, default_answer: false,
  };
  return merged(of, changes);
}

/** RFC 7396. */
export function merged(target, patch) {
  if (patch === null || typeof patch !== 'object' || Array.isArray(patch)) return patch;
  const out = { ...(typeof target === 'object' && target !== null ? target : {}) };
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete out[name];
    else out[name] = merged(out[name], value);
  }
  return out;
}

const SCENARIOS = {
  cluster: {
    models: [
      { name: 'resnet50', rate: 900, median: 20_000, stand_in: 'resnet18', settings: { policy: 'stand-in' } },
      { name: 'fashion-lenet', rate: 240, median: 6_000, codes: [[2, 1], [4, 1]], settings: { policy: 'parm+', coding: { k: 4 } } },
    ],
    instances: 24, nodes: 6, slow_node: 2,
  },
  many: {
    models: [{ name: 'recommendation-two-tower-ranking-with-a-very-long-name-2026-11-canary', rate: 1500, median: 20_000,
      stand_in: 'two-tower-distilled', settings: { policy: 'stand-in' } }],
    instances: 100, nodes: 20, slow_node: 4, long: true,
  },
  hedge: { models: [{ name: 'resnet50', rate: 900, median: 20_000, settings: {} }], instances: 12, nodes: 4 },
  empty: { models: [], instances: 0, nodes: 0 },
  quiet: { models: [{ name: 'resnet50', rate: 0, median: 20_000, settings: {} }], instances: 3, nodes: 1 },
};

export class Cluster {
  constructor(scenario = 'cluster', seed = 7) {
    const script = SCENARIOS[scenario];
    this.random = generator(seed);
    this.started = Date.now() - 6 * 3_600_000 - 754_000;
    this.models = script.models.map((model, m) => ({ ...model, m, settings: settings(model.settings), revision: 1, own: true,
      given: Math.round(0.011 * 50_000), tokens: { retry: 100, hedge: 10 }, pending: [] }));
    this.instances = Array.from({ length: script.instances }, (_, at) => this.member(at, script));
    this.events = [];
    this.news = [];
    this.queries = [];
    this.changed = { models: false, instances: false };
    this.serial = 41;
    this.second = 0;
    if (script.slow_node !== undefined) {
      this.tell('joined', { instance: 1, text: 'ready' }, -5_400_000);
      this.tell('settings', { m: 0, text: 'stand_in.bound 0.02 to 0.05', by: 'ops' }, -3_100_000);
    }
  }

  member(at, script) {
    const per = script.instances / script.nodes;
    const node = Math.floor(at / per);
    const long = script.long ? 'inference-workers.recommendation-production.svc.cluster.local' : '';
    return {
      number: at + 1, source: 'dns', zone: `eu-1${'abc'[node % 3]}`,
      node: script.long ? `gke-europe-west4-l4-spot-pool-7f3c9a1e-${(node * 7919 % 9973).toString(36)}z` : `gpu-node-${node + 1}`,
      address: long ? `http://worker-${at}.${long}:8000` : `http://10.0.${node + 1}.${11 + at % per}:8000`,
      state: 'ready', reason: null, factor: (node === script.slow_node ? 3.1 : 1) * (0.96 + 0.08 * this.random()),
      stopped: false, out_for: 0, silent: 0, jobs: 0, failures: 0, times: [], slow: [], agreed: 0, compared: 0, problem: null,
    };
  }

  tell(kind, { instance = null, m = null, text, by = null }, ago = 0) {
    const event = { at: this.now() + ago, kind, instance, m, text, by };
    this.events.push(event);
    if (this.events.length > EVENTS) this.events.shift();
    this.news.push(event);
  }

  now() { return this.at ?? Date.now(); }

  // Actions of a test or an operator.

  /** An instance hangs: it accepts jobs and does not answer. */
  stop(number) { this.one(number).stopped = true; }

  go(number) { this.one(number).stopped = false; }

  one(number) { return this.instances.find((instance) => instance.number === number); }

  order(number, order, by) {
    const one = this.one(number);
    if (!one) return null;
    if (order === 'drain') Object.assign(one, { state: 'draining', reason: null });
    if (order === 'eject') Object.assign(one, { state: 'ejected', reason: 'order' });
    if (order === 'undrain') Object.assign(one, { state: 'ready', reason: null, out_for: 0 });
    const kind = { drain: 'draining', eject: 'ejected', undrain: 'returned' }[order];
    if (!kind) return null;
    this.tell(kind, { instance: number, text: 'by order', by });
    return one;
  }

  change(model, patch, by) {
    for (const [path, value] of leaves(patch)) {
      const before = path.split('.').reduce((at, name) => at?.[name], model.settings);
      this.tell('settings', { m: model.m, text: `${path} ${before} to ${value}`, by });
    }
    model.settings = merged(model.settings, patch);
    model.revision += 1;
    this.changed.models = true;
  }

  // Contents of the stream.

  hello(role, key, interval) {
    return { format: 1, version: '0.1.0', at: Date.now(), started_at: this.started, role, key, interval_ms: interval, history_s: 300,
      outcomes: OUTCOMES, roles: ['deployed', 'copy', 'parity', 'backup', 'stand-in'], counts: COUNTS,
      rejections: ['queue_full', 'overload', 'no_instance', 'bad_query', 'deadline', 'failed'], budgets: ['retry', 'hedge'],
      columns: COLUMNS, states: STATES, reasons: REASONS, buckets: BUCKETS,
      policies: ['none', 'once', 'equal', 'replicate', 'hedge', 'parm', 'parm+', 'approximate-backup', 'stand-in'],
      bounds: { instances: 1024, events: EVENTS, queries: 1024, node_slow_factor: 2 } };
  }

  names() {
    return this.models.map(({ m, name, settings: own, revision, own: has, codes = [], stand_in = null }) => {
      const missing = own.policy === 'stand-in' && !stand_in ? 'the model has no stand-in: it is hedged'
        : /^parm/.test(own.policy) && !codes.length ? 'no code fits: it is hedged' : null;
      return { m, name, version: '1', policy: own.policy, in_force: missing ? 'hedge' : own.policy, revision, own: has, codes,
        stand_in, problem: missing };
    });
  }

  members() {
    return this.instances.map(({ number, address, source, node, zone, problem }) => ({ number, address, source, node, zone,
      models: this.models.map(({ m }) => m), problem }));
  }

  /** The next second. */
  frame(at = Date.now()) {
    this.at = at;
    this.second += 1;
    for (const one of this.instances) Object.assign(one, { jobs: 0, failures: 0, inflight: 0 });
    const models = this.models.map((model) => this.play(model));
    for (const one of this.instances) this.watch(one);
    const instances = this.instances.map((one) => this.row(one));
    this.at = undefined;
    return { at, over_ms: 1000, models, instances };
  }

  play(model) {
    const own = model.settings;
    const usable = this.instances.filter((one) => one.state === 'ready');
    const latency = OUTCOMES.map(() => new Map());
    const alone = new Map();
    const counts = Object.fromEntries(COUNTS.map((name) => [name, 0]));
    const work = [0, 0, 0, 0, 0];
    const rejections = [0, 0, 0, 0, 0, 0];
    let unknown = 0;
    const policy = this.names()[model.m].in_force;
    const swing = 1 + 0.12 * Math.sin(this.second / 19) + 0.05 * (this.random() - 0.5);
    const arrived = Math.round(model.rate * swing);
    const late = model.median * 1.9;
    const trouble = this.second % 97 > 80; // now and then half of the stragglers coincide
    for (let query = 0; query < arrived; query += 1) {
      counts.arrived += 1;
      if (!usable.length) { rejections[2] += 1; add(latency[6], 1_000_000); continue; }
      const one = this.pick(usable);
      one.jobs += 1;
      counts.jobs += 1;
      counts.batches += 1;
      counts.batch_rows += 1;
      const straggles = this.random() < (trouble ? 0.028 : 0.007);
      const time = one.stopped ? Infinity
        : model.median * one.factor * Math.exp(0.07 * normal(this.random)) * (straggles ? 2.6 + 3.2 * this.random() : 1);
      this.note(one, time, model);
      work[0] += Math.min(time, 1e6);
      let [outcome, took] = [0, time];
      if (policy === 'stand-in' && time > model.median * 1.3) {
        const answer = model.median * (1.16 + 0.12 * Math.abs(normal(this.random)));
        counts.stand_ins_late += 1;
        if (answer < time && model.given < own.stand_in.bound * 60 * model.rate && this.random() < 0.985) {
          [outcome, took] = [3, answer];
          counts.stand_ins_served += 1;
        }
      } else if (policy === 'parm+' && time > model.median * 1.3) {
        const answer = model.median * (1.22 + 0.2 * Math.abs(normal(this.random)));
        if (this.random() < 0.9) { [outcome, took] = [2, answer]; counts.reconstructions += 1; counts.reconstructions_served += 1; }
      }
      if (outcome === 0 && policy !== 'none' && policy !== 'equal' && time > late && model.tokens.hedge >= 1) {
        const answer = late + model.median * (1 + 0.1 * Math.abs(normal(this.random)));
        model.tokens.hedge -= 1;
        counts.hedges += 1;
        work[1] += answer - late;
        if (answer < time) { [outcome, took] = [1, answer]; counts.hedges_won += 1; }
      }
      model.tokens.hedge = Math.min(BURSTS.hedge, model.tokens.hedge + own.hedge.budget.ratio);
      if (took === Infinity) { rejections[4] += 1; took = 1_000_000; outcome = 7; }
      add(latency[outcome], took);
      if (time === Infinity) unknown += 1; else add(alone, time);
      if (policy === 'stand-in') {
        if (this.random() < 0.16) { work[4] += model.median * 0.31; this.compare(counts, one); }
        model.given = Math.max(0, model.given + (outcome === 3 ? 1 : 0) - model.given / (60 * model.rate));
      }
      if (outcome !== 0 || query === 7) this.keep(model, one, outcome, took, time);
    }
    const groups = policy === 'parm+' ? this.groups(model, counts, work, usable) : null;
    const flat = (histogram) => [...histogram].sort((a, b) => a[0] - b[0]).flat();
    const busy = work[0] / 1e6;
    const slots = usable.length;
    return { m: model.m, latency: latency.map(flat), alone: flat(alone), alone_unknown: unknown, rejections,
      counts: COUNTS.map((name) => counts[name]), work_us: work.map(Math.round),
      queue: [Math.max(0, Math.round((busy / Math.max(1, slots) - 0.8) * 60 + this.random() * 2)), Math.round(busy) + 2, Math.round(busy), slots,
        this.instances.length, slots],
      queue_limit: own.queue_limit, busy, service_us: arrived ? [model.median, Math.round(late)] : null, late_us: arrived ? Math.round(late) : null,
      objective_us: arrived ? [Math.round(late * 1.3), 1_000_000] : null,
      budgets: [[model.tokens.retry, BURSTS.retry], [model.tokens.hedge, BURSTS.hedge]],
      approximate: policy === 'stand-in' ? [Math.round(model.given), Math.floor(own.stand_in.bound * 60 * model.rate), Math.round(60 * model.rate)] : null,
      agreement: policy === 'stand-in' ? 0.962 + 0.006 * Math.sin(this.second / 31) : null, withheld: false, outage: false, groups };
  }

  pick(usable) {
    // An idle instance takes the next query: slow ones take fewer.
    const drawn = Array.from({ length: 3 }, () => usable[Math.floor(this.random() * usable.length)]);
    const fast = drawn.filter((one) => one.factor < 2);
    return fast[0] ?? drawn[0];
  }

  note(one, time, model) {
    if (time === Infinity) { one.inflight = 1; return; }
    one.inflight = this.random() < 0.7 ? 1 : 0;
    if (model.m === 0) one.times = [...one.times.slice(-255), time];
    one.slow = [...one.slow.slice(-63), time / model.median];
  }

  compare(counts, one) {
    const agrees = this.random() < 0.962;
    counts.compared += 1;
    counts.disagreed += agrees ? 0 : 1;
    one.compared += 1;
    one.agreed += agrees ? 1 : 0;
    if (one.compared > 2000) { one.compared /= 2; one.agreed /= 2; }
  }

  groups(model, counts, work, usable) {
    const made = Math.round(counts.arrived / 4);
    counts.groups += made;
    counts.parities += Math.round(made * 0.92);
    counts.groups_partial += Math.round(made * 0.04);
    work[2] += made * 0.92 * model.median;
    const open = usable.length ? [[4, 1 + Math.floor(this.random() * 3), Math.round(this.random() * 9000)], [2, 1, Math.round(2000 * this.random())]] : [];
    return { open, made: [[2, Math.round(made * 0.3)], [4, Math.round(made * 0.7)]] };
  }

  /** Ejects hung instances, and returns them. */
  watch(one) {
    if (one.stopped && one.state === 'ready') {
      one.silent += 1000;
      if (one.silent >= 2000) {
        Object.assign(one, { state: 'ejected', reason: 'silent', out_for: 0 });
        this.tell('trouble', { instance: one.number, m: 0, text: 'silent: it holds a job for 2s, which usually takes 20ms' });
      }
    } else if (one.state === 'ejected' && one.reason !== 'order') {
      one.out_for += 1000;
      one.silent += 1000;
      if (!one.stopped && one.out_for >= 3000) {
        Object.assign(one, { state: 'ready', reason: null, silent: 0 });
        this.tell('returned', { instance: one.number, text: 'readmitted after a probe' });
      }
    } else one.silent = 0;
  }

  row(one) {
    const sorted = [...one.times].sort((a, b) => a - b);
    const at = (share) => (sorted.length ? Math.round(sorted[Math.round((sorted.length - 1) * share)]) : null);
    const slow = [...one.slow].sort((a, b) => a - b);
    const slowness = slow.length < 8 ? null : Math.round(slow[slow.length >> 1] * 100) / 100;
    const held = one.stopped || one.inflight ? 1 : 0;
    const trouble = one.stopped && one.silent >= 1000 ? 'silent' : slowness >= 2 ? 'slow' : null;
    const reason = one.state === 'ready' ? trouble : one.reason;
    return [one.number, STATES.indexOf(one.state), REASONS.indexOf(reason), held, 1, one.jobs, one.failures, at(0.5), at(0.99), slowness,
      one.stopped ? one.silent : held ? 9 : null, one.compared ? Math.round(one.agreed) : null, one.compared ? Math.round(one.compared) : null,
      one.state === 'ejected' && one.reason !== 'order' ? Math.max(0, 2000 - one.out_for % 2000) : null,
      slowness >= 1.4 ? slowness : null];
  }

  keep(model, one, outcome, took, time) {
    this.serial += 1;
    const name = OUTCOMES[outcome];
    const other = this.instances[(one.number * 5 + this.serial) % this.instances.length];
    const id = `${this.serial.toString(16).padStart(8, '0')}${(this.serial % 61).toString(16).padStart(8, '0')}`;
    const us = Math.round;
    const timeline = [{ at_us: 0, what: 'arrived' }, { at_us: 38, what: 'given', instance: one.number, job: this.serial * 3, rows: 1 }];
    const late = model.median * (name === 'hedged' ? 1.9 : 1.15);
    const own = { instance: one.number, job: this.serial * 3 };
    if (name === 'reconstructed') {
      timeline.push({ at_us: 52, what: 'grouped', group: this.serial * 2, k: 4, slot: 2 },
        { at_us: 4300, what: 'parity_given', instance: other.number, job: this.serial * 3 + 1, group: this.serial * 2 },
        { at_us: us(model.median), what: 'parity_in', instance: other.number, job: this.serial * 3 + 1, group: this.serial * 2 });
    }
    if (outcome) timeline.push({ at_us: us(Math.min(late, took)), what: 'late', after_us: us(late) });
    if (name === 'hedged') timeline.push({ at_us: us(late + 40), what: 'hedged', instance: other.number, job: this.serial * 3 + 1, rows: 1 });
    if (name === 'stand-in') {
      timeline.push({ at_us: 61, what: 'stand_in_given', instance: other.number, job: this.serial * 3 + 1, urgency: 'spare' },
        { at_us: us(model.median * 0.36), what: 'stand_in_in', instance: other.number, job: this.serial * 3 + 1, confidence: 0.93 },
        { at_us: us(took - 5), what: 'held_back', until_us: us(took) });
    }
    if (name === 'reconstructed') timeline.push({ at_us: us(took - 60), what: 'decoded', group: this.serial * 2, confidence: 0.88 });
    timeline.push({ at_us: us(took), what: 'answered', outcome: name, ...(name === 'failed' ? { error: 'the deadline passed after 1 s' } : {}) });
    const came = time === Infinity || name === 'rejected' ? null : us(time);
    if (outcome && came) timeline.push({ at_us: came, what: 'prediction_in', ...own, agrees: name === 'hedged' ? null : this.random() < 0.96 });
    timeline.sort((a, b) => a.at_us - b.at_us);
    this.queries.push({ id, request: `frame-${this.serial}`, model: model.name, version: '1', at: this.now() - us(this.random() * 900), took_us: us(took),
      outcome: name, confidence: name === 'stand-in' ? 0.93 : name === 'reconstructed' ? 0.88 : null, alone_us: came,
      instance: name === 'exact' ? one.number : name === 'reconstructed' || name === 'failed' ? null : other.number, deadline_us: 1_000_000, timeline });
    if (this.queries.length > 1024) this.queries.shift();
  }
}

function add(histogram, us) {
  const bucket = Math.min(400, Math.max(0, Math.floor(Math.log2(us / BUCKETS.first_us) * BUCKETS.per_octave)));
  histogram.set(bucket, (histogram.get(bucket) ?? 0) + 1);
}

function* leaves(patch, path = '') {
  for (const [name, value] of Object.entries(patch)) {
    const at = path ? `${path}.${name}` : name;
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) yield* leaves(value, at);
    else yield [at, value];
  }
}

function normal(random) { return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random()); }

/** Mulberry32. */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
