// Latency over time: the median, with bands up to p90, p99 and p99.9, of all answers or of one outcome; below, the shares of outcomes.

import { area, bounds, line, linear, logarithmic, ticks } from './chart.js';
import { h, keyed, s, say, set, show } from './dom.js';
import { History } from './history.js';
import { quantile, sum, total } from './histogram.js';
import { Table } from './table.js';
import { clock, count, share, span, time } from './words.js';

const [HEIGHT, LEFT, ENDS, TOP] = [360, 54, 76, 12];
/** End of the plot; start and end of the strip below it. */
const [PLOT, STRIP, FLOOR] = [262, 286, 332];
/** Milliseconds of queries in each point: a single second has too few for a tail. */
const POINT = 10_000;
const SHARES = [0.5, 0.9, 0.99, 0.999];
/** Minimum time span of the plot; later it covers everything known. */
const LEAST = 60_000;
const MARKED = ['ejected', 'trouble', 'returned', 'settings', 'withheld', 'suspect'];

export class Bands {
  constructor(root) {
    Object.assign(this, { outcome: 'all', cache: new WeakMap(), shown: [] });
    this.choices = h('div.choices', { role: 'group', 'aria-label': 'Outcome' });
    this.paths = Object.fromEntries(['b3', 'b2', 'b1', 'alone', 'p999', 'p50'].map((name) => [name, s('path', { class: name })]));
    [this.grid, this.strip, this.marks, this.names] = ['axis', 'strip', 'marks', 'names'].map((name) => s('g', { class: name }));
    this.cursor = s('line.cursor', { y1: TOP, y2: FLOOR });
    this.svg = s('svg', { role: 'img', 'aria-label': 'Latency over the last minutes; the slider and the table below tell its figures',
      onpointermove: (event) => this.point(event), onpointerleave: () => this.look(this.shown.length - 1) },
    this.grid, Object.values(this.paths), this.strip, this.marks, this.names, this.cursor);
    this.slider = h('input', { type: 'range', min: 0, max: 0, 'aria-label': 'Look at a moment', oninput: () => this.look(Number(this.slider.value)) });
    this.readout = h('output.readout');
    this.empty = h('p.empty', 'No answers yet. Once queries come, their latency is drawn here.');
    this.plot = h('div.plot', this.svg, this.slider, this.readout);
    const all = (point) => point.by.reduce((a, b) => a + b, 0) || 1;
    this.table = new Table('Latency table', [{ head: 'Time', text: ({ at }) => clock(at) }, ...['p50', 'p90', 'p99', 'p99.9'].map((head, at) => ({ head, text: ({ q }) => time(q[at]) })),
      { head: 'p99.9 without', text: ({ without }) => time(without) }, { head: 'Queries', text: (point) => count(all(point)) }, { head: 'Not exact', text: (point) => share(1 - point.by[0] / all(point)) }]);
    // Filled when it is opened: a table that changes while it is read aloud is useless.
    this.details = h('details', { ontoggle: () => this.table.draw(this.details.open ? this.shown.filter((_, at) => (this.shown.length - 1 - at) % 10 === 0).reverse() : [], ({ at }) => at) },
      h('summary', 'These figures as a table, ten seconds to a row, as of when it is opened'), this.table.root);
    root.append(this.choices, this.empty, this.plot, this.details);
  }

  /** One point per frame. Points of known frames are kept. */
  points({ hello, frames }, m) {
    const of = `${m} ${this.outcome}`;
    const wanted = hello.outcomes.map((_, at) => at).filter((at) => (this.outcome === 'all' ? at < 6 : hello.outcomes[at] === this.outcome));
    let from = 0;
    return frames.map((frame, end) => {
      while (frame.at - frames[from].at >= POINT) from += 1;
      const known = this.cache.get(frame)?.[of];
      if (known) return known;
      const parts = frames.slice(from, end + 1).map((each) => History.part(each, m)).filter(Boolean);
      const all = sum(parts.flatMap((part) => wanted.map((at) => part.latency[at])));
      const never = parts.reduce((sum, part) => sum + part.alone_unknown, 0);
      const point = { at: frame.at, q: SHARES.map((share) => quantile(all, share, hello.buckets)), by: hello.outcomes.map((_, at) => total(sum(parts.map((part) => part.latency[at])))),
        without: this.outcome === 'all' ? quantile(sum(parts.map((part) => part.alone)), 0.999, hello.buckets, never) : null };
      this.cache.set(frame, { ...this.cache.get(frame), [of]: point });
      return point;
    });
  }

  draw(history, m) {
    const { hello, last } = history;
    const live = Number(this.slider.value) >= this.shown.length - 1;
    const gap = 2.5 * hello.interval_ms;
    this.shown = this.points(history, m);
    this.choose(history, m);
    const drawn = this.shown.filter((point) => point.q[0] !== null);
    for (const part of [this.plot, this.details]) show(part, drawn.length > 0);
    show(this.empty, !drawn.length);
    if (!drawn.length) return;
    // As wide as it is displayed, so that text keeps its size on a small screen.
    this.width = Math.max(320, Math.min(840, this.plot.clientWidth));
    this.end = this.width - ENDS;
    set(this.svg, 'viewBox', `0 0 ${this.width} ${HEIGHT}`);
    this.span = Math.min(hello.history_s * 1000, Math.max(LEAST, last - this.shown[0].at));
    this.x = linear([last - this.span, last], [LEFT, this.end]);
    const [low, high] = bounds(drawn.flatMap(({ q, without }) => [q[0], q[3], without]));
    const y = logarithmic([low, high], [PLOT, TOP]);
    const series = (pick) => this.shown.map((point) => ({ at: point.at, y: pick(point) }));
    [1, 2, 3].forEach((to) => set(this.paths[`b${to}`], 'd', area(this.shown.map(({ at, q }) => ({ at, y: q[to], low: q[to - 1] })), this.x, y, gap)));
    const lines = { p50: ['p50', ({ q }) => q[0]], p999: ['p99.9', ({ q }) => q[3]], alone: ['without', ({ without }) => without] };
    for (const [name, [, pick]] of Object.entries(lines)) set(this.paths[name], 'd', line(series(pick), this.x, y, gap));
    set(this.svg, 'class', this.outcome);
    this.axes(ticks(low, high), y, last);
    this.label(Object.values(lines).map(([name, pick]) => ({ name, y: y.at(pick(this.shown.at(-1)) ?? NaN) })));
    this.answers(hello.outcomes, gap);
    const events = history.events.filter(({ kind, at, m: of }) => MARKED.includes(kind) && (of === null || of === m) && at > last - this.span);
    this.marks.replaceChildren(...events.slice(-30).map(({ kind, at }) => s('path', { class: kind, d: `M${this.x.at(at).toFixed(1)} ${TOP}V${FLOOR}` })));
    set(this.slider, 'max', this.shown.length - 1);
    this.look(live ? this.shown.length - 1 : Number(this.slider.value));
  }

  /** Buttons for the outcomes present. */
  choose(history, m) {
    const seen = history.hello.outcomes.filter((name, at) => name === this.outcome || this.shown.some((point) => point.by[at]));
    keyed(this.choices, seen.length > 1 ? ['all', ...seen] : [], (name) => name, (name) => h('button', { class: name,
      onclick: () => { this.outcome = name; this.draw(history, m); } }, h('i'), name === 'all' ? 'all answers' : name),
    (button, name) => set(button, 'aria-pressed', String(name === this.outcome)));
  }

  axes(values, y, last) {
    const step = ([15_000, 30_000, 60_000].find((step) => this.span <= step * 5.1) ?? this.span / 5) * (this.width < 500 ? 2 : 1);
    const moments = Array.from({ length: Math.floor(this.span / step) + 1 }, (_, at) => [at * step, this.x.at(last - at * step)]);
    this.grid.replaceChildren(...values.flatMap((us) => [s('line', { x1: LEFT, x2: this.end, y1: y.at(us), y2: y.at(us) }), words(LEFT - 7, y.at(us) + 4, time(us), 'end')]),
      ...moments.map(([ago, x]) => words(x, HEIGHT - 8, ago ? `${span(ago)} ago` : 'now', x < LEFT + 20 ? 'start' : 'middle')));
  }

  /** Labels at the ends of lines, moved apart. */
  label(ends) {
    let last = -Infinity;
    this.names.replaceChildren(...ends.filter(({ y }) => Number.isFinite(y)).sort((a, b) => a.y - b.y).map(({ name, y }) => {
      last = Math.max(y + 4, last + 14);
      return words(this.end + 8, last, name, 'start');
    }));
  }

  /** Stacked shares of the outcomes other than exact. */
  answers(outcomes, gap) {
    const shares = this.shown.map(({ by }) => by.slice(1).map((some) => some / (by.reduce((a, b) => a + b, 0) || 1)));
    const most = Math.max(...shares.map((some) => some.reduce((a, b) => a + b, 0)));
    const top = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1].find((share) => share >= most) ?? 1;
    const y = linear([0, top], [FLOOR, STRIP]);
    const layers = outcomes.slice(1).map((name, to) => s('path', { class: `fill ${name}`, d: area(this.shown.map(({ at }, index) => {
      const low = shares[index].slice(0, to).reduce((a, b) => a + b, 0);
      return { at, low, y: low + shares[index][to] };
    }), this.x, y, gap) }));
    this.strip.replaceChildren(...layers, s('line', { x1: LEFT, x2: this.end, y1: FLOOR, y2: FLOOR }), words(LEFT - 7, STRIP + 8, `${top * 100} %`, 'end'), words(this.end + 8, FLOOR, 'not exact', 'start'));
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.width;
    const off = this.shown.map((point) => Math.abs(this.x.at(point.at) - x));
    this.look(off.indexOf(Math.min(...off)));
  }

  look(at) {
    const point = this.shown[at];
    if (!point) return;
    this.slider.value = at;
    for (const name of ['x1', 'x2']) set(this.cursor, name, this.x.at(point.at).toFixed(1));
    const text = point.q[0] === null ? 'no queries' : `p50 ${time(point.q[0])}, p90 ${time(point.q[1])}, p99 ${time(point.q[2])}, p99.9 ${time(point.q[3])}${point.without ? ` (${point.without === Infinity ? 'not known' : time(point.without)} without)` : ''}`;
    say(this.readout, `${clock(point.at)}: ${text}`);
    set(this.slider, 'aria-valuetext', this.readout.textContent);
  }
}

function words(x, y, text, anchor) {
  return s('text', { x, y, 'text-anchor': anchor }, text);
}
