// Invalid frames: corrupted lines of the simulated cluster. The page accepts or drops each; nothing throws, and nothing
// that it would show is NaN. `RUNS` is the number of lines, `SEED` their seed.

import { test } from 'node:test';
import assert from 'node:assert/strict';
import { about } from '../events.js';
import { History } from '../history.js';
import { remark, sorted, state, tone } from '../instances.js';
import { nodes } from '../nodes.js';
import { Lines } from '../stream.js';
import { summary } from '../summary.js';
import { jobs } from '../timeline.js';
import { notes, verdict } from '../verdict.js';
import { clock, count, share, span, time } from '../words.js';
import { Cluster } from './cluster.mjs';

const RUNS = Number(process.env.RUNS ?? 4000);
const SEED = Number(process.env.SEED ?? 1);

function generator(seed) {
  let state = seed >>> 0;
  return (bound) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 4_294_967_296) * bound);
  };
}

const STRANGE = [null, true, false, 0, -1, 1, 0.5, 1e308, -1e308, 2 ** 53, 8.64e15 + 1, 400, 401, '', 'x', '__proto__', [], [null], [1], {}, { a: 1 }, [[]], [[1, 2, 3]]];

const strange = (draw) => structuredClone(STRANGE[draw(STRANGE.length)]);

/** A copy with a few of its values, names or lengths changed. */
function garbled(line, draw) {
  const copy = structuredClone(line);
  for (let times = 1 + draw(3); times > 0; times -= 1) {
    let [at, name] = [copy, Object.keys(copy)[0]];
    // A random place in it, usually deep.
    while (at[name] !== null && typeof at[name] === 'object' && Object.keys(at[name]).length && draw(8)) {
      at = at[name];
      const names = Object.keys(at);
      name = names[draw(names.length)];
    }
    const change = draw(6);
    if (change === 0) delete at[name];
    else if (change === 1 && Array.isArray(at)) at.splice(draw(at.length + 1), draw(3), strange(draw));
    else if (change === 2 && typeof at[name] === 'number') at[name] *= [-1, 0, 1e6, 1e300, 0.001][draw(5)];
    else at[name] = strange(draw);
  }
  // As transmitted: without holes and infinities.
  return JSON.parse(JSON.stringify(copy));
}

/** Cuts out, doubles or reverses a piece of the text. */
function torn(text, draw) {
  const [from, length] = [draw(text.length), draw(20)];
  const piece = text.slice(from, from + length);
  return text.slice(0, from) + ['', piece + piece, [...piece].reverse().join(''), '\\n', '\u0000'][draw(5)] + text.slice(from + length);
}

/** All words and figures that the page derives from its data. */
function shown(history) {
  const { hello, models, rows } = history;
  if (!hello) return [];
  const list = nodes(rows, hello.bounds.node_slow_factor);
  const words = rows.flatMap((row) => [state(row), remark(row), `${tone(row)}`, time(row.p50_us), time(row.p99_us), count((row.jobs * 1000) / row.over_ms), `${row.inflight} of ${row.slots}`]);
  for (const column of ['trouble', 'node', 'slowness', 'agreed', 'state']) sorted(rows, column, true);
  for (const { node, ratio, jobs } of list) words.push(`${node}`, ratio === null ? '' : ratio.toFixed(2), count(jobs));
  for (const model of models) {
    const now = summary(history.parts(model.m, 60_000), hello);
    const { text, more } = verdict(model, now);
    words.push(text, ...more, ...notes(model, now, list, rows).map((note) => note.text), time(now.p50), share(now.extra), share(now.approximate));
    if (now.tail) words.push(time(now.at(now.tail)), time(now.without(now.tail)));
    for (const name of Object.keys(now.counts)) words.push(count(now.counts[name]));
  }
  for (const event of history.events) words.push(about(event, history.instances, models), clock(event.at), new Date(event.at).toISOString(), event.text);
  return [...words, clock(history.last), span(history.last - hello.started_at)];
}

const well = (words, of) => {
  for (const text of words) assert.doesNotMatch(`${text}`, /NaN|undefined|\[object/, `${JSON.stringify(of).slice(0, 400)}`);
};

function begun(cluster) {
  const history = new History();
  history.take({ hello: cluster.hello('control', null, 1000) });
  history.take({ models: cluster.names() });
  history.take({ instances: cluster.members() });
  history.take({ events: cluster.events });
  return history;
}

test('corrupted_lines_are_dropped_or_shown_correctly', () => {
  const draw = generator(SEED);
  const cluster = new Cluster('cluster');
  let at = Date.now();
  const lines = () => {
    at += 1000;
    const frame = cluster.frame(at);
    const { instances, ...past } = frame;
    return [{ frame }, { frame }, { frame }, { past }, { hello: cluster.hello('control', null, 1000) }, { models: cluster.names() }, { instances: cluster.members() },
      { events: cluster.events.slice(-5) }, { dropped: 3 }];
  };
  let [history, good, left] = [begun(cluster), lines(), 0];
  for (let run = 0; run < RUNS; run += 1) {
    if (run % 50 === 0) [history, good] = [begun(cluster), lines()];
    const line = garbled(good[draw(good.length)], draw);
    try {
      left += history.take(line) === null ? 1 : 0;
      well(shown(history), line);
    } catch (error) {
      throw new Error(`run ${run} of seed ${SEED}: ${JSON.stringify(line).slice(0, 1000)}`, { cause: error });
    }
  }
  assert.ok(left > RUNS / 4 && left < RUNS, `${left} of ${RUNS} were left out`);
});

test('truncated_text_gives_lines_or_a_stream_error', () => {
  const draw = generator(SEED + 1);
  const cluster = new Cluster('cluster');
  const text = `${JSON.stringify({ frame: cluster.frame() })}\n${JSON.stringify({ events: cluster.events })}\n`;
  let read = 0;
  for (let run = 0; run < RUNS; run += 1) {
    const history = begun(cluster);
    let found;
    try {
      found = new Lines().push(torn(text, draw));
    } catch (error) {
      assert.ok(error instanceof SyntaxError, error.message);
      continue;
    }
    found.forEach((line) => history.take(line));
    well(shown(history), 'torn');
    read += 1;
  }
  assert.ok(read > 0 && read < RUNS, `${read} of ${RUNS} could be read`);
});

test('valid_lines_are_never_dropped', () => {
  for (const scenario of ['cluster', 'many', 'hedge', 'empty', 'quiet']) {
    const cluster = new Cluster(scenario);
    const history = begun(cluster);
    for (let second = 0; second < 30; second += 1) {
      if (second === 5 && cluster.instances.length) cluster.stop(1);
      assert.equal(history.take({ frame: cluster.frame() }), 'frame');
    }
    well(shown(history), scenario);
    assert.equal(history.take({ news_of_a_later_version: 5 }), 'news_of_a_later_version');
    assert.equal(history.strange, 0, scenario);
    for (const query of cluster.queries.slice(-50)) jobs(query);
  }
});
