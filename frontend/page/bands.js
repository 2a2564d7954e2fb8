// Latency over time: the median, and bands from it to p90, p99 and p99.9, of all answers or of one outcome; below them who answered.

import { area, bounds, line, linear, logarithmic, ticks } from './chart.js';
import { h, s, say, set, show, keyed } from './dom.js';
import { History } from './history.js';
import { quantile, sum, total } from './histogram.js';
import { clock, count, share, time } from './words.js';

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP] = [840, 300, 54, 10, 12];
/** Where the answers' strip begins and ends, and the time axis. */
const [PLOT, STRIP, FLOOR] = [206, 228, 272];
/** Each point is of the queries of so many milliseconds: a second alone has too few for a tail. */
const POINT = 10_000;
const SHARES = [0.5, 0.9, 0.99, 0.999];

export class Bands {
  constructor(root) {
    this.outcome = 'all';
    this.cache = new WeakMap();
    this.choices = h('div', { class: 'choices', role: 'group', 'aria-label': 'Outcome' });
    this.parts = Object.fromEntries(['b3', 'b2', 'b1', 'alone', 'p999', 'p50'].map((name) => [name, s('path', { class: name })]));
    this.grid = s('g', { class: 'axis' });
    this.strip = s('g', { class: 'strip' });
    this.marks = s('g', { class: 'marks' });
    this.cursor = s('line', { class: 'cursor', y1: TOP, y2: FLOOR });
    this.svg = s('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-labelledby': 'bands-title' },
      s('title', { id: 'bands-title' }, 'Latency over the last minutes; the same figures are in the table below'),
      this.grid, ...Object.values(this.parts), this.strip, this.marks, this.cursor);
    this.slider = h('input', { type: 'range', min: 0, max: 0, value: 0, step: 1, 'aria-label': 'Look at a moment', oninput: () => this.look() });
    this.readout = h('output', { class: 'readout' });
    this.empty = h('p', { class: 'empty' }, 'No answers yet. Once queries come, their latency is drawn here.');
    this.body = h('tbody');
    this.taken = h('caption');
    this.table = h('details', { ontoggle: () => this.tell() }, h('summary', {}, 'These figures as a table'),
      h('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Latency table' },
        h('table', {}, this.taken, h('thead', {}, h('tr', {}, ['time', 'p50', 'p90', 'p99', 'p99.9', 'p99.9 without', 'queries', 'not exact']
          .map((name) => h('th', { scope: 'col' }, name)))), this.body)));
    this.svg.addEventListener('pointermove', (event) => this.point(event));
    this.svg.addEventListener('pointerleave', () => { this.slider.value = this.slider.max; this.look(); });
    this.figure = h('div', { class: 'plot' }, this.svg, this.slider, this.readout);
    root.append(this.choices, this.empty, this.figure, this.table);
  }

  /** One point for each frame: quantiles, and who answered. Those of frames that were seen before are kept. */
  points(history, m) {
    const { hello, frames } = history;
    const of = `${m} ${this.outcome}`;
    const wanted = hello.outcomes.map((name, at) => at).filter((at) => (this.outcome === 'all' ? at < 6 : hello.outcomes[at] === this.outcome));
    let from = 0;
    return frames.map((frame, end) => {
      while (frame.at - frames[from].at >= POINT) from += 1;
      const known = this.cache.get(frame)?.[of];
      if (known) return known;
      const parts = frames.slice(from, end + 1).map((each) => History.part(each, m)).filter(Boolean);
      const all = sum(parts.flatMap((part) => wanted.map((at) => part.latency[at])));
      const alone = sum(parts.map((part) => part.alone));
      const never = parts.reduce((all, part) => all + part.alone_unknown, 0);
      const queries = total(all);
      const q = SHARES.map((share) => quantile(all, share, hello.buckets));
      const by = hello.outcomes.map((_, at) => total(sum(parts.map((part) => part.latency[at]))));
      const point = { at: frame.at, q, queries, by, without: this.outcome === 'all' ? quantile(alone, 0.999, hello.buckets, never) : null };
      this.cache.set(frame, { ...this.cache.get(frame), [of]: point });
      return point;
    });
  }

  draw(history, m) {
    this.choose(history, m);
    const { hello } = history;
    this.hello = hello;
    this.shown = this.points(history, m);
    const drawn = this.shown.filter((point) => point.q[0] !== null);
    show(this.empty, !drawn.length);
    show(this.figure, drawn.length > 0);
    show(this.table, drawn.length > 0);
    if (!drawn.length) return;
    set(this.svg, 'data-outcome', this.outcome);
    const end = history.last;
    this.x = linear([end - hello.history_s * 1000, end], [LEFT, WIDTH - RIGHT]);
    const values = drawn.flatMap((point) => [point.q[0], point.q[3], point.without]).filter((us) => us && Number.isFinite(us));
    const [low, high] = bounds(Math.min(...values) * 0.9, Math.max(...values) * 1.05);
    this.y = logarithmic([low, high], [PLOT, TOP]);
    const gap = 2.5 * hello.interval_ms;
    const between = (low, high) => area(this.shown.map(({ at, q }) => ({ at, y: q[high], low: q[low] })), this.x, this.y, gap);
    const { b1, b2, b3, p50, p999, alone } = this.parts;
    set(b1, 'd', between(0, 1));
    set(b2, 'd', between(1, 2));
    set(b3, 'd', between(2, 3));
    set(p50, 'd', line(this.shown.map(({ at, q }) => ({ at, y: q[0] })), this.x, this.y, gap));
    set(p999, 'd', line(this.shown.map(({ at, q }) => ({ at, y: q[3] })), this.x, this.y, gap));
    set(alone, 'd', line(this.shown.map(({ at, without }) => ({ at, y: without })), this.x, this.y, gap));
    this.axes(low, high, end);
    this.answers(gap);
    this.events(history, m, end);
    const live = this.slider.value === this.slider.max;
    set(this.slider, 'max', this.shown.length - 1);
    if (live) this.slider.value = this.shown.length - 1;
    this.look();
  }

  /** Buttons for the outcomes that there are. */
  choose(history, m) {
    const seen = history.hello.outcomes.filter((name, at) => name === 'exact' || name === this.outcome
      || history.frames.some((frame) => History.part(frame, m)?.latency[at].length));
    keyed(this.choices, seen.length > 1 ? ['all', ...seen] : [], (name) => name, (name) => h('button', { type: 'button', class: name,
      onclick: () => { this.outcome = name; this.draw(history, m); } }, h('i', { 'aria-hidden': 'true' }), name === 'all' ? 'all answers' : name),
    (button, name) => set(button, 'aria-pressed', String(name === this.outcome)));
  }

  axes(low, high, end) {
    const text = (x, y, words, anchor = 'end') => s('text', { x, y, 'text-anchor': anchor }, words);
    const lines = ticks(low, high).flatMap((us) => [
      s('line', { x1: LEFT, x2: WIDTH - RIGHT, y1: this.y.at(us), y2: this.y.at(us) }), text(LEFT - 7, this.y.at(us) + 4, time(us))]);
    const minutes = [0, 1, 2, 3, 4, 5].map((ago) => [ago, end - ago * 60_000]).filter(([, at]) => this.x.at(at) >= LEFT - 1);
    this.grid.replaceChildren(...lines, ...minutes.map(([ago, at]) => text(this.x.at(at), HEIGHT - 8, ago ? `${ago} min ago` : 'now', ago === 5 ? 'start' : ago ? 'middle' : 'end')));
  }

  /** Who answered, but for exact answers: a strip whose full height is its round maximum. */
  answers(gap) {
    const { outcomes } = this.hello;
    const answered = (point) => point.by.reduce((a, b) => a + b, 0) || 1;
    const others = outcomes.map((name, at) => at).slice(1);
    const most = Math.max(0.01, ...this.shown.map((point) => others.reduce((all, at) => all + point.by[at], 0) / answered(point)));
    const top = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1].find((share) => share >= most * 0.999) ?? 1;
    const y = linear([0, top], [FLOOR, STRIP]);
    const base = this.shown.map(() => 0);
    const layers = others.map((at) => {
      const points = this.shown.map((point, index) => {
        const low = base[index];
        base[index] += point.by[at] / answered(point);
        return { at: point.at, y: base[index], low };
      });
      return s('path', { class: `fill ${outcomes[at]}`, d: area(points, this.x, y, gap) });
    });
    this.strip.replaceChildren(...layers, s('line', { x1: LEFT, x2: WIDTH - RIGHT, y1: FLOOR, y2: FLOOR }),
      s('text', { x: LEFT - 7, y: STRIP + 8, 'text-anchor': 'end' }, share(top).replace('.0', '')), s('text', { x: LEFT - 7, y: FLOOR + 2, 'text-anchor': 'end' }, '0'),
      s('text', { x: LEFT, y: STRIP - 5, 'text-anchor': 'start' }, 'not exact'));
  }

  events(history, m, end) {
    const worth = ['ejected', 'returned', 'settings', 'withheld', 'suspect'];
    const seen = history.events.filter((event) => worth.includes(event.kind) && (event.m === null || event.m === m) && event.at > end - history.hello.history_s * 1000);
    this.marks.replaceChildren(...seen.slice(-30).map((event) => s('path', { class: event.kind, d: `M${this.x.at(event.at).toFixed(1)} ${TOP}V${FLOOR}` })));
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDTH;
    let best = 0;
    this.shown.forEach((point, at) => { if (Math.abs(this.x.at(point.at) - x) < Math.abs(this.x.at(this.shown[best].at) - x)) best = at; });
    this.slider.value = best;
    this.look();
  }

  look() {
    const point = this.shown?.[Number(this.slider.value)];
    if (!point) return;
    for (const name of ['x1', 'x2']) set(this.cursor, name, this.x.at(point.at).toFixed(1));
    const [p50, p90, p99, p999] = point.q.map(time);
    const without = point.without ? ` (${point.without === Infinity ? 'not known' : time(point.without)} without)` : '';
    const text = point.queries ? `p50 ${p50}, p90 ${p90}, p99 ${p99}, p99.9 ${p999}${without}` : 'no queries';
    say(this.readout, `${clock(point.at)}  ${text}`);
    set(this.slider, 'aria-valuetext', `${clock(point.at)}: ${text}`);
  }

  /** Fills the table as of now: one that changes while it is read aloud is of no use. */
  tell() {
    if (!this.table.open) return this.body.replaceChildren();
    const rows = this.shown.filter((_, at) => (this.shown.length - 1 - at) % 10 === 0).reverse();
    say(this.taken, `As of ${clock(this.shown.at(-1).at)}; each row is of ${POINT / 1000} seconds. Open again for later ones.`);
    return this.body.replaceChildren(...rows.map((point) => h('tr', {}, h('th', { scope: 'row' }, clock(point.at)),
      [...point.q.map(time), time(point.without), count(point.queries), share(1 - point.by[0] / (point.by.reduce((a, b) => a + b, 0) || 1))].map((text) => h('td', {}, text)))));
  }
}
