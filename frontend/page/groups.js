// Coding groups: those open now, and the latest that ended, a column each.

import { facts, h, keyed, s, say } from './dom.js';
import { count, share, time } from './words.js';

const WORDS = { p: 'predicted', r: 'reconstructed', d: 'decoded, not needed', u: 'unsure', x: 'lost', '.': 'blank', o: 'filled', w: 'awaited', i: 'parity in', l: 'parity late', n: 'parity never sent' };
const [SIZE, STEP, KEPT] = [13, 17, 40];

export class Groups {
  constructor(root) {
    Object.assign(this, { ended: [], serial: 0, lead: h('p.lead'), facts: h('dl.facts') });
    this.strip = h('ol.groups', { 'aria-hidden': 'true' });
    root.append(this.lead, this.strip, h('p.legend', [...'prdil'].map((letter) => h('span', { class: `cell-${letter}` }, h('i'), WORDS[letter]))), this.facts);
  }

  /** Returns whether there is anything to draw. */
  draw(groups, { counts }, fresh) {
    if (!groups) return false;
    // A frame is redrawn when another model is selected, but its groups are added once.
    if (fresh) this.ended = [...groups.ended.map((group) => ({ key: (this.serial += 1), group })), ...this.ended].slice(0, KEPT);
    const open = groups.open.map(([k, filled, age], at) => ({ key: `open ${at}`, group: [k, 1, 'o'.repeat(filled).padEnd(k, 'w'), 'w', age] }));
    keyed(this.strip, [...open, ...this.ended], ({ key }) => key, ({ group }) => h('li', { class: group[5] ? null : 'open' }), (li, { group }) => this.column(li, group));
    const fill = groups.ended.map((group) => group[4]).sort((a, b) => a - b);
    say(this.lead, groups.open.length ? `Filling now: ${groups.open.map(([k, filled]) => `${filled} of ${k}`).join(', ')}.` : 'No group is open.');
    facts(this.facts, [
      ['Last second', groups.made.map(([k, made]) => `${count(made)} of k = ${k}`).join(', ') || 'none'],
      ['Groups', `${count(counts.groups - counts.groups_partial)} full, ${count(counts.groups_partial)} partial, ${count(counts.groups_dissolved)} without parities`],
      ['Half were full within', time(fill[fill.length >> 1])],
      ['Reconstructions', `${count(counts.reconstructions_served)} given (${share(counts.reconstructions_served / (counts.arrived || 1))}), ${count(counts.reconstructions_unsure)} unsure`],
    ]);
    return true;
  }

  column(li, [k, r, slots, parities, filled, over]) {
    const text = `${slots}${parities}`;
    if (li.dataset.text === text) return;
    li.dataset.text = text;
    const height = (k + r) * STEP + 4;
    const cells = [...text].map((letter, at) => s('rect', { class: `cell-${letter === '.' ? 'w' : letter}`, x: 1, y: 1 + at * STEP, width: SIZE, height: SIZE, rx: 2,
      transform: at < k ? null : `rotate(45 ${SIZE / 2 + 1} ${at * STEP + SIZE / 2 + 1}) translate(1.5 1.5) scale(.92)` }));
    li.replaceChildren(s('svg', { viewBox: `-2 -1 ${SIZE + 6} ${height}`, width: SIZE + 6, height }, cells));
    li.title = `${[...text].map((letter) => WORDS[letter]).join(', ')}${over ? `; full after ${time(filled)}, over after ${time(over)}` : ''}`;
  }
}
