// Tests without a browser: figures, sentences, lines.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { readFile, readdir } from 'node:fs/promises';
import { bounds, line, linear, ticks } from '../chart.js';
import { FIELDS, shown, value } from '../controls.js';
import * as ctl from '../ctl.js';
import { about, folded } from '../events.js';
import { deepest, quantile, slower, sum, total } from '../histogram.js';
import { History } from '../history.js';
import { remark, sorted, state, tone } from '../instances.js';
import { nodes } from '../nodes.js';
import { Queue, runs } from '../queue.js';
import { Lines, wait } from '../stream.js';
import { summary } from '../summary.js';
import { jobs } from '../timeline.js';
import { notes, verdict } from '../verdict.js';
import { apart, beside, list, many, share, span, time } from '../words.js';
import { Cluster } from './cluster.mjs';
import { FILES } from './mock.mjs';
import { why } from './words.mjs';

const buckets = { first_us: 64, per_octave: 16 };
const near = (is, want, within = 0.03) => assert.ok(Math.abs(is / want - 1) < within, `${is} is not ${want}`);
const bucket = (us) => Math.floor(Math.log2(us / 64) * 16);

test('times_and_shares_have_about_three_digits_and_a_unit', () => {
  assert.deepEqual([0, 640, 994, 996, 9940, 24_400, 1_400_000, null, Infinity].map(time), ['0 µs', '640 µs', '994 µs', '1.0 ms', '9.9 ms', '24 ms', '1.4 s', '–', 'never']);
  assert.deepEqual([0, 0.00005, 0.00123, 0.011, 0.5, 1, null].map(share), ['0 %', '< 0.01 %', '0.12 %', '1.1 %', '50.0 %', '100 %', '–']);
  assert.deepEqual([900, 4000, 89_000, 300_000, 8e6, 9e8].map(span), ['0.9 s', '4 s', '89 s', '5 min', '2.2 h', '10 days']);
  assert.equal(beside(98_000, 24_000), '98');
  assert.equal(beside(1_200_000, 24_000), '1.2 s');
  assert.deepEqual([many(1, 'query'), many(3, 'query'), many(1200, 'instance'), list(['a', 'b', 'c'])], ['1 query', '3 queries', '1,200 instances', 'a, b and c']);
});

test('names_are_shown_without_shared_prefix_or_suffix', () => {
  assert.deepEqual([...apart(['gke-europe-west4-pool-a1', 'gke-europe-west4-pool-b2']).values()], ['…a1', '…b2']);
  assert.deepEqual([...apart(['worker-1.pool.svc.cluster.local:8000', 'worker-2.pool.svc.cluster.local:8000']).values()], ['worker-1…', 'worker-2…']);
  assert.deepEqual([...apart(['http://127.0.0.1:9001', 'http://127.0.0.1:9002']).values()], ['…9001', '…9002']);
  assert.deepEqual([...apart(['http://10.0.0.15:8000', 'http://10.0.0.25:8000']).values()], ['…15:8000', '…25:8000']);
  assert.deepEqual([...apart(['node-1', 'node-2']).values()], ['node-1', 'node-2']);
  assert.deepEqual([...apart(['a-name-that-stands-alone']).values()], ['a-name-that-stands-alone']);
});

test('summed_histograms_have_quantiles_of_all_queries', () => {
  const fast = [bucket(20_000), 990];
  const slow = [bucket(20_000), 5, bucket(100_000), 5];
  const all = sum([fast, slow]);
  assert.equal(total(all), 1000);
  near(quantile(all, 0.5, buckets), 20_000, 0.05);
  near(quantile(all, 0.999, buckets), 100_000, 0.05);
  assert.equal(slower(all, 50_000, buckets), 5);
  assert.equal(quantile(new Map(), 0.5, buckets), null);
});

test('missing_prediction_counts_as_slowest', () => {
  const all = sum([[bucket(20_000), 995]]);
  assert.equal(quantile(all, 0.999, buckets, 5), Infinity);
  near(quantile(all, 0.99, buckets, 5), 20_000, 0.05);
});

test('quantile_is_shown_only_with_five_queries_beyond_it', () => {
  assert.deepEqual([5000, 4999, 500, 499, 50, 49, 0].map(deepest), [0.999, 0.99, 0.99, 0.9, 0.9, null, null]);
});

const hello = new Cluster('quiet').hello('control', null, 1000);

/** A part of a frame with so many queries per outcome and time: `{ exact: [[20_000, 990]] }`. */
function part(latency, more = {}) {
  const flat = (pairs) => [...(pairs ?? [])].sort((a, b) => a[0] - b[0]).flatMap(([us, count]) => [bucket(us), count]);
  return { m: 0, latency: hello.outcomes.map((name) => flat(latency[name])), alone: flat(more.alone ?? latency.exact), alone_unknown: more.never ?? 0,
    rejections: more.rejections ?? [0, 0, 0, 0, 0, 0], counts: hello.counts.map(() => 0), work_us: [100, 5, 0, 0, 0], queue: more.queue ?? [0, 9, 9, 12, 12, 12], queue_limit: 1024, busy: 6,
    service_us: [20_000, 38_000], late_us: more.late ?? 26_000, objective_us: null, budgets: [[100, 100], [10, 10]], approximate: null, agreement: null, withheld: false, groups: null, ...more.also };
}
const model = (policy, more = {}) => ({ m: 0, name: 'resnet50', policy, in_force: policy, problem: null, codes: [], ...more });
const said = (policy, latency, more) => verdict(model(policy), summary([part(latency, more)], hello));

test('verdict_compares_with_and_without_redundancy', () => {
  const { text, tone, more } = said('stand-in', { exact: [[20_000, 9890]], 'stand-in': [[24_000, 110]] }, { alone: [[20_000, 9890], [98_000, 110]] });
  assert.match(text, /^Stand-ins answer 1\.1 % of queries; p99\.9 is 2[345] ms, (9[5-9]|10[0-2])( ms)? without them\.$/);
  assert.equal(tone, 'good');
  assert.match(more[0], /^Hedges alone would reach about 46 ms\.$/);
});

test('verdict_states_when_a_hedge_is_enough', () => {
  const { more } = said('parm+', { exact: [[20_000, 9890]], reconstructed: [[45_000, 110]] }, { alone: [[20_000, 9890], [98_000, 110]] });
  assert.deepEqual(more, ['A hedge would be enough here: it reaches about 46 ms.']);
});

test('unknown_latency_without_redundancy_is_not_shown', () => {
  const { text, more } = said('hedge', { exact: [[20_000, 9890]], hedged: [[46_000, 110]] }, { alone: [[20_000, 9890], [98_000, 50]], never: 60 });
  assert.match(text, /^Hedges answer 1\.1 % of queries; p99\.9 is 4[5-8] ms\.$/);
  assert.match(more[0], /^60 predictions never came/);
});

test('verdict_names_the_fault_first', () => {
  const cases = [
    [said('hedge', {}, { queue: [0, 0, 0, 0, 12, 0] }), 'bad', /^Outage: no instance serves resnet50\. Every request fails\.$/],
    [said('hedge', {}, { queue: [0, 0, 0, 0, 0, 0] }), 'bad', /^Outage: no instance serves resnet50\. Every request fails\.$/],
    [said('hedge', { exact: [[20_000, 9000]], rejected: [[100, 1000]] }, { rejections: [1000, 0, 0, 0, 0, 0] }), 'bad', /^10\.0 % of queries fail: the queue is full\.$/],
    [said('hedge', { exact: [[20_000, 9000]], rejected: [[100, 1000]] }, { rejections: [10, 990, 0, 0, 0, 0] }), 'bad', /fail: more queries wait than can be answered in time\.$/],
    [said('hedge', {}), 'none', /^No queries/],
    [said('hedge', { exact: [[20_000, 12]] }), 'none', /^12 queries so far: too few/],
    [said('none', { exact: [[20_000, 9900], [210_000, 100]] }), 'warn', /^p99\.9 is 2\d\d ms, 1\d\.\d times the median\.$/],
    [said('hedge', { exact: [[20_000, 10_000]] }), 'good', /^All is well/],
    [verdict(model('hedge'), summary([], hello)), 'none', /^No data of resnet50 yet\.$/],
  ];
  for (const [{ tone, text }, want, words] of cases) {
    assert.match(text, words);
    assert.equal(tone, want, text);
  }
});

const row = (number, more = {}) => ({ number, address: `http://w${number}`, node: `node-${Math.ceil(number / 2)}`, state: 'ready', reason: null, inflight: 0, slots: 1, jobs: 10, over_ms: 1000, failures: 0,
  p50_us: 20_000, p99_us: 30_000, slowness: 1, oldest_ms: null, agreed: null, compared: null, retry_in_ms: null, slower: null, problem: null, ...more });

test('node_is_slow_if_all_its_instances_are', () => {
  const rows = [1, 2, 3, 4, 5, 6].map((number) => row(number, { slowness: number > 4 ? 3.1 : 1 }));
  const [slow, ...others] = nodes(rows, 2);
  assert.equal(slow.node, 'node-3');
  assert.ok(slow.slow);
  near(slow.ratio, 3.1);
  assert.ok(others.every((node) => !node.slow));
  assert.deepEqual(nodes([row(1, { slowness: 9 }), row(2), row(3), row(4)], 2).filter((node) => node.slow), [], 'one slow instance is no slow node');
  assert.deepEqual(nodes([row(1, { node: null })], 2), []);
});

test('queue_shows_rows_of_batches_and_share_of_the_objective', () => {
  const now = part({ exact: [[20_000, 100]] }, { also: { objective_us: [95_000, 100_000] } });
  assert.match(runs(now, { batches: 40, batch_rows: 100 }), / A batch has 2\.5 rows on average\.$/);
  assert.doesNotMatch(runs(now, { batches: 0, batch_rows: 0 }), /batch/);
  const meter = (part) => Queue.prototype.list(part, null).find(([name]) => name === 'Objective');
  assert.deepEqual(meter(now), ['Objective', 95_000, 100_000, 'p99 95 ms of 100 ms', true]);
  assert.equal(meter(part({ exact: [[20_000, 100]] })), undefined);
});

test('notes_name_nodes_instances_queues_and_bounds', () => {
  const rows = [1, 2, 3, 4, 5, 6].map((number) => row(number, { slowness: number > 4 ? 3.1 : 1 }));
  rows[0] = row(1, { state: 'ejected', reason: 'silent' });
  const now = summary([part({ exact: [[20_000, 9890]] }, { queue: [40, 50, 12, 11, 12, 11], also: { approximate: [2400, 2500, 50_000], withheld: true, agreement: 0.7 } })], hello);
  const words = notes(model('stand-in', { in_force: 'hedge', problem: 'the model has no stand-in' }), now, nodes(rows, 2), rows).map(({ text }) => text).join('\n');
  for (const part of ['The policy stand-in is not in effect: the model has no stand-in.', 'Node node-3 is 3.1 times slower than the others: cordon it.', '1 instance ejected: 1.',
    '40 queries wait', 'agree with 70.0 %', '96.0 % of their bound']) assert.ok(words.includes(part), `${part}\n${words}`);
});

test('rows_show_faults_and_sort_them_first', () => {
  const rows = [row(1), row(2, { slowness: 2.4, reason: 'slow' }), row(3, { state: 'ejected', reason: 'failing', retry_in_ms: 1200 }), row(4, { reason: 'silent', oldest_ms: 2100 }), row(5, { state: 'draining' }), row(6, { slowness: null })];
  assert.deepEqual(sorted(rows, 'trouble', true).map(({ number }) => number), [3, 4, 2, 5, 1, 6]);
  assert.deepEqual(sorted(rows, 'slowness', false).map(({ number }) => number).at(-1), 6, 'what is not known is last');
  assert.deepEqual(sorted(rows, 'slowness', true).map(({ number }) => number).at(-1), 6);
  assert.deepEqual(rows.map(state), ['ready', 'ready, slow', 'ejected: failing', 'ready, silent', 'draining', 'ready']);
  assert.equal(remark(rows[3]), 'holds a job for 2.1 s');
  assert.equal(remark(rows[2]), 'trial in 1.2 s');
  assert.equal(remark(row(7, { slower: 2.43 })), '2.4x slower');
  assert.equal(remark(row(8, { slower: 0.8 })), '');
  assert.deepEqual(rows.map(tone), [null, 'warn', 'bad', 'bad', 'warn', null]);
});

test('history_is_bounded', () => {
  const cluster = new Cluster('hedge');
  const history = new History();
  history.take({ hello: cluster.hello('control', null, 1000) });
  history.take({ models: cluster.names() });
  history.take({ instances: cluster.members() });
  let at = 1_000_000;
  const frame = cluster.frame(at);
  for (let count = 0; count < 2000; count += 1) {
    at += 1000;
    history.take({ frame: { ...frame, at } });
    history.take({ events: [{ at, kind: 'kept', instance: 1, m: 0, text: 'slow', by: null }] });
  }
  assert.deepEqual([history.frames.length, history.events.length, history.series.get(1).length, history.rows.length], [300, 200, 60, 12]);
  history.take({ past: { ...frame, at: at - 5000 } });
  assert.equal(history.last, at, 'what is known is not told twice');
  history.take({ instances: cluster.members().slice(0, 3) });
  assert.equal(history.series.size, 3);
  history.take({ hello: { ...cluster.hello('control', null, 1000), started_at: 5 } });
  assert.deepEqual([history.frames.length, history.events.length], [0, 0], 'another frontend');
});

test('lines_are_split_at_any_chunk_boundary', () => {
  const lines = new Lines();
  assert.deepEqual(lines.push('{"a":1}\n{"b"'), [{ a: 1 }]);
  assert.deepEqual(lines.push(':2}\n\n{"c":3}\n'), [{ b: 2 }, { c: 3 }]);
  assert.throws(() => lines.push('x'.repeat(5 << 20)), /too long/);
});

test('retry_delay_grows_up_to_a_limit', () => {
  const waits = [0, 1, 2, 3, 10, 1000].map((tries) => wait(tries, 0.5));
  assert.deepEqual(waits, [500, 1000, 2000, 4000, 15_000, 15_000]);
  assert.ok(wait(0, 0) < wait(0, 1));
});

test('controls_make_a_merge_patch_and_its_command', () => {
  const changes = { 'stand_in.bound': 0.02, 'coding.grace.factor': 1.3, policy: 'parm+' };
  assert.deepEqual(ctl.patch(changes), { stand_in: { bound: 0.02 }, coding: { grace: { factor: 1.3 } }, policy: 'parm+' });
  assert.equal(ctl.set('resnet50', changes), 'parm ctl set resnet50 stand_in.bound=0.02 coding.grace.factor=1.3 policy=parm+');
  assert.equal(ctl.set("it's", { queue_limit: 5 }), "parm ctl set 'it'\\''s' queue_limit=5");
  assert.deepEqual([ctl.order('undrain', 3), ctl.order('drain', 9, 10), ctl.query('2a')], ['parm ctl return 3', 'parm ctl drain 9 10', 'parm ctl query 2a']);
});

test('fields_show_percent_and_reject_invalid_values', () => {
  const field = (path) => FIELDS.find((field) => field.path === path);
  const bound = field('stand_in.bound');
  assert.equal(shown(bound, 0.05), '5');
  assert.deepEqual(['2', '0.1', '', '101', 'x'].map((text) => value(bound, text)), [0.02, 0.001, null, null, null]);
  assert.deepEqual(['4', '2.5', '0'].map((text) => value(field('coding.k'), text)), [4, null, null]);
  const cluster = new Cluster('cluster');
  for (const { path } of FIELDS) assert.notEqual(ctl.at(cluster.models[0].settings, path), undefined, path);
});

test('timeline_shows_reason_and_instances', () => {
  const query = { outcome: 'stand-in', took_us: 24_800, alone_us: 98_200, timeline: [{ at_us: 0, what: 'arrived' }, { at_us: 40, what: 'given', instance: 3, job: 1 },
    { at_us: 60, what: 'stand_in_given', instance: 7, job: 2, urgency: 'spare' }, { at_us: 7000, what: 'stand_in_in', instance: 7, job: 2 }, { at_us: 23_000, what: 'late', after_us: 23_000 },
    { at_us: 24_800, what: 'answered', outcome: 'stand-in' }, { at_us: 98_200, what: 'prediction_in', instance: 3, job: 1, agrees: true }] };
  assert.equal(why(query), 'Its prediction from instance 3 was late after 23 ms, so a stand-in answered it after 25 ms, 73 ms sooner than the prediction, which came after 98 ms.');
  assert.deepEqual(jobs(query).map(({ kind, to }) => [kind, to]), [['given', 98_200], ['stand_in_given', 7000]]);
  const exact = { outcome: 'exact', took_us: 21_000, alone_us: 21_000, timeline: [{ at_us: 4, what: 'given', instance: 3, job: 1 }, { at_us: 21_000, what: 'answered', outcome: 'exact' }] };
  assert.equal(jobs(exact)[0].to, 21_000);
});

test('chart_lines_break_at_unknown_values', () => {
  const x = linear([0, 10], [0, 100]);
  const points = [{ at: 0, y: 1 }, { at: 1, y: 2 }, { at: 5, y: 2 }, { at: 6, y: null }, { at: 7, y: 1 }];
  assert.equal(line(points, x, x, 2).match(/M/g).length, 3);
  assert.deepEqual(bounds([20_000, 28_000, null, Infinity]), [15_000, 30_000]);
  assert.deepEqual(ticks(10, 100), [10, 20, 50, 100]);
  assert.deepEqual(ticks(1, 1e6), [1, 10, 100, 1000, 10_000, 100_000, 1_000_000]);
});

test('events_name_their_subject', () => {
  const instances = new Map([[7, { node: 'node-2' }]]);
  assert.equal(about({ instance: 7, m: 0 }, instances, []), 'instance 7 on node-2');
  assert.equal(about({ instance: 9, m: 0 }, instances, []), 'instance 9');
  assert.equal(about({ instance: null, m: 0 }, instances, [{ m: 0, name: 'resnet50' }]), 'resnet50');
});

test('repeated_trouble_is_one_event', () => {
  const event = (at, kind, instance, by = null) => ({ at, kind, instance, m: null, text: '', by });
  const flaps = Array.from({ length: 20 }, (_, at) => event(at * 2000, at % 2 ? 'returned' : 'trouble', 3));
  const all = folded([event(0, 'settings', null, 'ops'), ...flaps, event(50_000, 'trouble', 4), event(51_000, 'ejected', 3, 'ops'), event(200_000, 'trouble', 3)]);
  assert.deepEqual(all.map(({ at, kind, instance, times, since }) => [at, kind, instance, times, at - since]), [[0, 'settings', null, 1, 0],
    [36_000, 'trouble', 3, 10, 36_000], [38_000, 'returned', 3, 10, 36_000], [50_000, 'trouble', 4, 1, 0], [51_000, 'ejected', 3, 1, 0], [200_000, 'trouble', 3, 1, 0]]);
  const counted = (at, times) => ({ ...event(at, 'trouble', 3), times, since: 1000 });
  assert.deepEqual(folded([counted(60_000, 7), counted(61_000, 8)]).map(({ at, times, since }) => [at, times, since]), [[61_000, 8, 1000]]);
});

test('page_files_are_served_and_small', async () => {
  const folder = new URL('../', import.meta.url);
  const kept = (await readdir(folder)).filter((name) => /\.(js|css|svg|html)$/.test(name));
  assert.deepEqual(kept.sort(), [...FILES, 'index.html'].sort());
  const texts = await Promise.all(kept.map((name) => readFile(new URL(name, folder), 'utf8')));
  const bytes = texts.reduce((all, text) => all + Buffer.byteLength(text), 0);
  assert.ok(bytes < 112_000, `${bytes} bytes`);
  for (const [at, text] of texts.entries()) {
    assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacent|\beval\b|document\.write/, kept[at]);
    for (const [, name] of text.matchAll(/from '\.\/([\w.]+)'/g)) assert.ok(kept.includes(name), `${kept[at]} imports ${name}`);
  }
});
