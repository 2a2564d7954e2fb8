// What happened, newest first.

import { h, keyed, say, set, show } from './dom.js';
import { clock } from './words.js';

const SHOWN = 60;
const TONES = { ejected: 'bad', lost: 'bad', refused: 'bad', suspect: 'bad', withheld: 'bad', kept: 'warn', draining: 'warn', returned: 'good', joined: 'good', resumed: 'good' };

/** Who an event is about: an instance, or a model. */
export function about({ instance, m }, instances, models) {
  if (instance === null) return models.find((model) => model.m === m)?.name ?? '';
  const node = instances.get(instance)?.node;
  return `instance ${instance}${node ? ` on ${node}` : ''}`;
}

export class Events {
  constructor(root) {
    this.empty = h('p.empty', 'Nothing happened yet.');
    this.list = h('ol.events');
    this.box = h('div.tall', { tabindex: 0, role: 'region', 'aria-label': 'Events' }, this.list);
    root.append(this.empty, this.box);
  }

  draw(history) {
    const latest = history.events.slice(-SHOWN).reverse();
    show(this.empty, !latest.length);
    show(this.box, latest.length > 0);
    keyed(this.list, latest, (event) => `${event.at} ${event.kind} ${event.instance} ${event.text}`, (event) => {
      const li = h('li', h('time', clock(event.at)), h('span.badge', event.kind), h('span.said'));
      set(li, 'data-tone', TONES[event.kind]);
      set(li.firstChild, 'datetime', new Date(event.at).toISOString());
      return li;
    }, (li, event) => {
      const who = about(event, history.instances, history.models);
      say(li.lastChild, `${who}${who && event.text ? ': ' : ''}${event.text}${event.by ? `, by ${event.by}` : ''}`);
    });
  }
}
