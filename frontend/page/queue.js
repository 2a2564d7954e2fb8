// What waits, how busy the instances are, and what is left of each budget, as meters.

import { h, keyed, s, say, set } from './dom.js';
import { count, figure, share, time } from './words.js';

export class Queue {
  constructor(root) {
    this.meters = h('ul', { class: 'meters' });
    this.facts = h('p', { class: 'soft' });
    root.append(this.meters, this.facts);
  }

  draw(part, now, settings) {
    if (!part) return say(this.facts, 'Nothing is known yet.');
    keyed(this.meters, this.list(part, settings), ({ name }) => name, ({ name }) => this.meter(name), (li, meter) => {
      const filled = Math.min(1, Math.max(0, meter.of ? meter.is / meter.of : 0));
      say(li.querySelector('.figure'), meter.text);
      set(li.querySelector('rect.filled'), 'width', (filled * 100).toFixed(1));
      const bar = li.querySelector('svg');
      set(bar, 'aria-valuenow', Math.round(filled * 100));
      set(bar, 'aria-valuetext', meter.text);
      set(li, 'data-tone', meter.tone ?? null);
    });
    return say(this.facts, part.late_us ? `A run takes ${time(part.service_us[0])}; after ${time(part.late_us)} a job is late.` : 'Too few jobs to say how long a run takes.');
  }

  meter(name) {
    const bar = s('svg', { viewBox: '0 0 100 6', preserveAspectRatio: 'none', role: 'meter', 'aria-label': name, 'aria-valuemin': 0, 'aria-valuemax': 100 },
      s('rect', { class: 'rail', width: 100, height: 6 }), s('rect', { class: 'filled', height: 6 }));
    return h('li', {}, h('span', { class: 'label' }, name), h('span', { class: 'figure' }), bar);
  }

  list(part, settings) {
    const [waiting, , , usable, members, slots] = part.queue;
    const [retry, hedge, late] = part.budgets;
    const budget = (name, tokens, ratio) => tokens && { name, is: tokens[0], of: tokens[1], tone: tokens[0] < 1 ? 'warn' : null,
      text: `${figure(tokens[0])} of ${count(tokens[1])} left${ratio === undefined ? '' : `, ${share(ratio)} of jobs`}` };
    return [
      { name: 'Queue', is: waiting, of: part.queue_limit, text: `${count(waiting)} of ${count(part.queue_limit)}`, tone: waiting > Math.max(1, slots) ? 'warn' : null },
      { name: 'Busy', is: part.busy, of: slots, text: `${figure(part.busy)} of ${count(slots)} slots`, tone: part.busy > slots * 0.9 ? 'warn' : null },
      { name: 'In service', is: usable, of: members, text: `${count(usable)} of ${count(members)} instances`, tone: usable < members ? 'warn' : null },
      budget('Hedges', hedge, settings?.hedge.budget.ratio),
      budget('Retries', retry, settings?.retry.ratio),
      budget('Late stand-ins', late, settings?.stand_in.late_budget.ratio),
      part.approximate && { name: 'Approximate', is: part.approximate[0], of: part.approximate[1], tone: part.approximate[0] >= part.approximate[1] * 0.9 ? 'warn' : null,
        text: `${count(part.approximate[0])} of at most ${count(part.approximate[1])} in ${count(part.approximate[2])}` },
    ].filter(Boolean);
  }
}
