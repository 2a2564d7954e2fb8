// A few figures with their recent history.

import { h, keyed, say, set } from './dom.js';
import { Spark } from './chart.js';
import { NAMES, quantile, sum, total } from './histogram.js';
import { count, share, time } from './words.js';

export class Tiles {
  constructor(root) {
    this.root = root;
    this.cache = new WeakMap();
  }

  draw(parts, now, recent) {
    const made = ([label]) => {
      const spark = new Spark();
      const li = h('li', h('span.label', label), h('span.value'), h('span.beside'), spark.root);
      return Object.assign(li, { spark });
    };
    keyed(this.root, this.figures(parts, now, recent), ([label]) => label, made, (li, [, value, beside, series, least, warns]) => {
      say(li.children[1], value);
      say(li.children[2], beside);
      set(li, 'data-tone', warns && 'warn');
      li.spark.draw(series, least);
    });
  }

  /** Figures of one frame; cached, as a frame does not change. */
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

  /** Name, figure, note below it, its series with minimum height, and whether to warn. */
  figures(parts, now, recent) {
    const { latest, tail, buckets, approximate, extra } = now;
    const series = parts.map((part) => this.of(part, buckets));
    const of = (name) => series.map((each) => each[name]);
    const rate = of('rate').slice(-recent.length).reduce((a, b) => a + b, 0) / Math.max(1, recent.length);
    const [waiting = 0, , , usable = 0, members = 0, slots = 0] = latest?.queue ?? [];
    const given = latest?.approximate;
    const without = tail && now.without(tail);
    return [
      ['Queries', `${count(rate)} / s`, `${count(now.answered)} answered`, of('rate'), 1],
      ['Median', time(now.p50), latest?.service_us ? `a run takes ${time(latest.service_us[0])}` : '', of('p50'), 1],
      [NAMES.get(tail) ?? 'Tail', tail ? time(now.at(tail)) : '–', !tail ? 'too few queries' : !without || without === Infinity ? 'not known without' : `${time(without)} without`, of('p99'), 1],
      ['Approximate', share(approximate), given ? `${count(given[0])} of at most ${count(given[1])}` : '', of('approximate'), 0.01],
      ['Extra work', share(extra), latest ? `${share(latest.busy / Math.max(1, slots))} busy` : '', of('extra'), 0.05],
      ['Waiting', count(waiting), `${usable} of ${members} in service`, of('waiting'), 10, waiting > Math.max(1, slots)],
    ];
  }
}
