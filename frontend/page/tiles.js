// A few figures with their last minutes.

import { h, keyed, say, set } from './dom.js';
import { Spark } from './chart.js';
import { NAMES, sum, total, quantile } from './histogram.js';
import { count, figure, share, time } from './words.js';

export class Tiles {
  constructor(root) {
    this.root = root;
    this.sparks = new Map();
    this.cache = new WeakMap();
  }

  draw(parts, now, recent) {
    keyed(this.root, this.figures(parts, now, recent), ({ name }) => name, (tile) => this.made(tile), (li, tile) => {
      say(li.querySelector('.value'), tile.value);
      say(li.querySelector('.beside'), tile.beside);
      set(li, 'data-tone', tile.tone ?? null);
      this.sparks.get(tile.key).draw(tile.series, 0, tile.least ?? 1e-9);
    });
    const names = new Set([...this.root.children].map((li) => li.dataset.key));
    for (const name of this.sparks.keys()) if (!names.has(name)) this.sparks.delete(name);
  }

  made(tile) {
    const spark = new Spark();
    this.sparks.set(tile.key, spark);
    return h('li', {}, h('span', { class: 'label' }, tile.label), h('span', { class: 'value' }), h('span', { class: 'beside' }), spark.root);
  }

  /** The figures of one frame; kept, as a frame does not change. */
  of(part, buckets) {
    if (!this.cache.has(part)) {
      const all = sum(part.latency.slice(0, 6));
      const answered = total(all);
      const [deployed, ...extra] = part.work_us;
      this.cache.set(part, {
        rate: answered + total(sum(part.latency.slice(6))), p50: quantile(all, 0.5, buckets), p99: quantile(all, 0.99, buckets),
        approximate: answered ? total(sum(part.latency.slice(2, 6))) / answered : null,
        extra: deployed ? extra.reduce((a, b) => a + b) / deployed : null, waiting: part.queue[0],
      });
    }
    return this.cache.get(part);
  }

  figures(parts, now, recent) {
    const { latest, tail, buckets } = now;
    const seconds = Math.max(1, recent.length);
    const series = parts.map((part) => this.of(part, buckets));
    const of = (name) => series.map((each) => each[name]);
    const [waiting, , running, usable, members, slots] = latest?.queue ?? [];
    const given = latest?.approximate;
    const tiles = [
      { label: 'Queries', value: `${count(of('rate').slice(-seconds).reduce((a, b) => a + b, 0) / seconds)} / s`, beside: `${count(now.answered)} answered`, series: of('rate') },
      { label: 'Median', value: time(now.p50), beside: latest?.service_us ? `a run takes ${time(latest.service_us[0])}` : '', series: of('p50') },
      { label: NAMES.get(tail) ?? 'Tail', value: tail ? time(now.at(tail)) : '–', beside: without(now), series: of('p99') },
      { label: 'Approximate', value: share(now.approximate), beside: given ? `at most ${share(given[1] / given[2])}` : '', series: of('approximate'), least: 0.01 },
      { label: 'Extra work', value: share(now.extra), beside: latest ? `${share(latest.busy / Math.max(1, slots))} busy` : '', series: of('extra'), least: 0.05 },
      { label: 'Waiting', value: latest ? count(waiting) : '–', beside: latest ? `${usable} of ${members} instances, ${figure(running)} jobs` : '',
        series: of('waiting'), least: 10, tone: waiting > Math.max(1, slots) ? 'warn' : null },
    ];
    return tiles.map((tile, at) => ({ ...tile, name: at + tile.label, key: at + tile.label }));
  }
}

function without(now) {
  if (!now.tail) return 'too few queries';
  const us = now.without(now.tail);
  return us === null || us === Infinity ? 'without redundancy: not known' : `${time(us)} without redundancy`;
}
