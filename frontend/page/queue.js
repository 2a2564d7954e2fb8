// Queue, utilisation, the part of the latency objective in use, and the rest of each budget, as meters.

import { h, keyed, s, say, set } from './dom.js';
import { count, figure, share, time } from './words.js';

/** How long a run takes, and how many rows a batch has. */
export function runs(part, { batches, batch_rows: rows }) {
  const took = part?.late_us ? `A run takes ${time(part.service_us[0])}; after ${time(part.late_us)} a job is late.` : 'Too few jobs to say how long a run takes.';
  return batches ? `${took} A batch has ${figure(rows / batches)} rows on average.` : took;
}

export class Queue {
  constructor(root) {
    this.meters = h('ul.meters');
    this.facts = h('p.soft');
    root.append(this.meters, this.facts);
  }

  draw({ latest: part, counts }, settings) {
    say(this.facts, runs(part, counts));
    keyed(this.meters, part ? this.list(part, settings) : [], ([name]) => name, ([name]) => this.meter(name), (li, [, is, of, text, warns]) => {
      const percent = (100 * Math.min(1, Math.max(0, is / (of || 1)))).toFixed(1);
      const [, figure, bar] = li.children;
      say(figure, text);
      set(bar.lastChild, 'width', percent);
      set(bar, 'aria-valuenow', Math.round(percent));
      set(bar, 'aria-valuetext', text);
      set(li, 'data-tone', warns && 'warn');
    });
  }

  meter(name) {
    return h('li', h('span.label', name), h('span.figure'), s('svg', { viewBox: '0 0 100 6', preserveAspectRatio: 'none', role: 'meter', 'aria-label': name,
      'aria-valuemin': 0, 'aria-valuemax': 100 }, s('rect.rail', { width: 100, height: 6 }), s('rect.filled', { height: 6 })));
  }

  /** Name, amount and limit, in words, and whether to warn. */
  list({ queue, queue_limit: limit, busy, objective_us: objective, budgets, approximate }, settings) {
    const [waiting, , , usable, members, slots] = queue;
    const budget = (name, tokens, ratio) => tokens && [name, ...tokens, `${figure(tokens[0])} of ${count(tokens[1])} left${ratio === undefined ? '' : `, ${share(ratio)} of jobs`}`, tokens[0] < 1];
    return [
      ['Queue', waiting, limit, `${count(waiting)} of ${count(limit)}`, waiting > Math.max(1, slots)],
      ['Busy', busy, slots, `${figure(busy)} of ${count(slots)} slots`, busy > slots * 0.9],
      ['In service', usable, members, `${count(usable)} of ${count(members)} instances`, usable < members],
      objective && ['Objective', ...objective, `p99 ${time(objective[0])} of ${time(objective[1])}`, objective[0] > objective[1] * 0.9],
      budget('Hedge budget', budgets[1], settings?.hedge.budget.ratio),
      budget('Retry budget', budgets[0]),
      approximate && ['Approximate', approximate[0], approximate[1], `${count(approximate[0])} of at most ${count(approximate[1])} in ${count(approximate[2])}`, approximate[0] >= approximate[1] * 0.9],
    ].filter(Boolean);
  }
}
