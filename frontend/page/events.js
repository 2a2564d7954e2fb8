// Events, newest first.

import { h, keyed, say, set, show } from './dom.js';
import { clock, count, span } from './words.js';

const SHOWN = 60;
const TONES = { ejected: 'bad', trouble: 'bad', lost: 'bad', refused: 'bad', suspect: 'bad', withheld: 'bad', draining: 'warn', returned: 'good', joined: 'good', resumed: 'good' };

/** Subject of an event: an instance or a model. */
export function about({ instance, m }, instances, models) {
  if (instance === null) return models.find((model) => model.m === m)?.name ?? '';
  const node = instances.get(instance)?.node;
  return `instance ${instance}${node ? ` on ${node}` : ''}`;
}

/** A trouble is told once a minute while it lasts: repetitions within this time are one entry with a count. */
const AGAIN = 90_000;

/** Events, oldest first, with repetitions merged: the latest, its `times` and its start. */
export function folded(events) {
  const all = new Map();
  for (const [at, event] of events.entries()) {
    const key = (event.kind === 'trouble' || event.kind === 'returned') && event.by === null ? `${event.kind} ${event.instance}` : at;
    const before = all.get(key);
    const again = before && event.at - before.at < AGAIN;
    if (before && !again) all.set(-1 - at, before);
    all.delete(key);
    all.set(key, { ...event, times: Math.max(again ? before.times + 1 : 1, event.times ?? 1), since: Math.min(again ? before.since : event.at, event.since ?? event.at) });
  }
  return [...all.values()].sort((a, b) => a.at - b.at);
}

export class Events {
  constructor(root) {
    this.empty = h('p.empty', 'Nothing happened yet.');
    this.list = h('ol.events');
    this.box = h('div.tall', { tabindex: 0, role: 'region', 'aria-label': 'Events' }, this.list);
    root.append(this.empty, this.box);
  }

  draw(history) {
    const latest = folded(history.events).slice(-SHOWN).reverse();
    show(this.empty, !latest.length);
    show(this.box, latest.length > 0);
    keyed(this.list, latest, (event) => `${event.at} ${event.kind} ${event.instance} ${event.text}`, (event) => {
      const li = h('li', h('time', clock(event.at)), h('span.badge', event.kind), h('span.said'));
      set(li, 'data-tone', TONES[event.kind]);
      set(li.firstChild, 'datetime', new Date(event.at).toISOString());
      return li;
    }, (li, event) => {
      const who = about(event, history.instances, history.models);
      const often = event.times > 1 ? `; ${count(event.times)} times in ${span(event.at - event.since)}` : '';
      say(li.lastChild, `${who}${who && event.text ? ': ' : ''}${event.text}${often}${event.by ? `, by ${event.by}` : ''}`);
    });
  }
}
