// Coding groups: those that take members, a column each, and how many were made.

import { facts, h, keyed, s, say } from './dom.js';
import { count, share } from './words.js';

const [SIZE, STEP] = [13, 17];

export class Groups {
  constructor(root) {
    Object.assign(this, { lead: h('p.lead'), facts: h('dl.facts') });
    this.strip = h('ol.groups', { 'aria-hidden': 'true' });
    root.append(this.lead, this.strip, this.facts);
  }

  /** Returns whether there is anything to draw. */
  draw(groups, { counts }) {
    if (!groups) return false;
    const open = groups.open.map(([k, filled], at) => ({ key: `${at}`, k, filled }));
    keyed(this.strip, open, ({ key }) => key, () => h('li.open'), (li, group) => this.column(li, group));
    say(this.lead, open.length ? `Filling now: ${open.map(({ k, filled }) => `${filled} of ${k}`).join(', ')}.` : 'No group is open.');
    facts(this.facts, [
      ['Last second', groups.made.map(([k, made]) => `${count(made)} of k = ${k}`).join(', ') || 'none'],
      ['Groups', `${count(counts.groups - counts.groups_partial)} full, ${count(counts.groups_partial)} partial, ${count(counts.groups_dissolved)} without parities`],
      ['Reconstructions', `${count(counts.reconstructions_served)} given (${share(counts.reconstructions_served / (counts.arrived || 1))}), ${count(counts.reconstructions_unsure)} unsure`],
    ]);
    return true;
  }

  /** A square for each member, the missing ones dashed. */
  column(li, { k, filled }) {
    const text = `${filled} of ${k}`;
    if (li.dataset.text === text) return;
    li.dataset.text = text;
    const height = k * STEP + 4;
    const cells = Array.from({ length: k }, (_, at) => s('rect', { class: at < filled ? 'cell-o' : 'cell-w', x: 1, y: 1 + at * STEP, width: SIZE, height: SIZE, rx: 2 }));
    li.replaceChildren(s('svg', { viewBox: `-2 -1 ${SIZE + 6} ${height}`, width: SIZE + 6, height }, cells));
  }
}
