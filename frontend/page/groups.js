// Coding groups as they fill and decode: those open now, and the latest that ended, a column each.

import { h, keyed, s, say, set, show } from './dom.js';
import { count, share, time } from './words.js';

const SLOTS = { p: 'predicted', r: 'reconstructed', d: 'decoded, not needed', u: 'unsure', x: 'lost', '.': 'blank', o: 'filled', w: 'awaited' };
const PARITIES = { i: 'parity in', l: 'parity late', n: 'parity never sent', x: 'parity lost', w: 'parity to come' };
const [SIZE, STEP, KEPT] = [13, 17, 24];

export class Groups {
  constructor(root) {
    this.ended = [];
    this.serial = 0;
    this.lead = h('p', { class: 'lead' });
    this.strip = h('ol', { class: 'groups', 'aria-hidden': 'true' });
    this.legend = h('p', { class: 'legend small', 'aria-hidden': 'true' }, ['p', 'r', 'd', 'u'].map((letter) => h('span', { class: `slot-${letter}` }, h('i', {}), SLOTS[letter])),
      h('span', { class: 'parity-i' }, h('i', {}), 'parity in'), h('span', { class: 'parity-l' }, h('i', {}), 'parity late'));
    this.facts = h('dl', { class: 'facts' });
    root.append(this.lead, this.strip, this.legend, this.facts);
  }

  draw(model, part, now, fresh) {
    const groups = part?.groups;
    if (!groups) return false;
    // A frame is drawn again when the model is chosen anew; its groups are not told twice.
    if (fresh) this.ended = [...groups.ended.map((group) => ({ key: (this.serial += 1), group })).reverse(), ...this.ended].slice(0, KEPT);
    const open = groups.open.map(([k, filled, age], at) => ({ key: `open ${at}`, open: true, group: [k, 1, 'o'.repeat(filled).padEnd(k, 'w'), 'w', age, null] }));
    keyed(this.strip, [...open, ...this.ended], ({ key }) => key, ({ open }) => h('li', { class: open ? 'open' : null }), (li, { group, open }) => this.column(li, group, open));
    const { counts } = now;
    const fill = groups.ended.map((group) => group[4]).sort((a, b) => a - b);
    say(this.lead, groups.open.length ? `Filling now: ${groups.open.map(([k, filled]) => `${filled} of ${k}`).join(', ')}.` : 'No group is open.');
    const whole = counts.groups - counts.groups_partial;
    const facts = [
      ['Groups', `${count(whole)} full, ${count(counts.groups_partial)} partial, ${count(counts.groups_dissolved)} without parities`],
      ['Last second', groups.made.filter(([, made]) => made).map(([k, made]) => `${count(made)} of k = ${k}`).join(', ') || 'none'],
      ['Filled within', fill.length ? `${time(fill[fill.length >> 1])}, half of them` : '–'],
      ['Parities', `${count(counts.parities)} sent, ${count(counts.parities_unsent)} never, ${count(counts.parities_late)} in too late`],
      ['Reconstructions', `${count(counts.reconstructions)} made, ${count(counts.reconstructions_served)} given (${share(counts.arrived ? counts.reconstructions_served / counts.arrived : 0)}), ${count(counts.reconstructions_unsure)} unsure`],
    ];
    keyed(this.facts, facts, ([name]) => name, ([name]) => h('div', {}, h('dt', {}, name), h('dd', {})), (row, [, text]) => say(row.lastChild, text));
    return true;
  }

  column(li, [k, r, slots, parities, filled, over], open) {
    const text = `${slots} ${parities}`;
    if (li.dataset.text === text) return;
    li.dataset.text = text;
    const height = (k + r) * STEP + 4;
    const cells = [...slots].map((letter, at) => s('rect', { class: `slot-${letter}`, x: 1, y: 1 + at * STEP, width: SIZE, height: SIZE, rx: 2 }));
    const diamonds = [...parities].map((letter, at) => {
      const [x, y] = [SIZE / 2 + 1, (k + at) * STEP + SIZE / 2 + 5];
      return s('path', { class: `parity-${letter}`, d: `M${x} ${y - 7}L${x + 7} ${y}L${x} ${y + 7}L${x - 7} ${y}Z` });
    });
    li.replaceChildren(s('svg', { viewBox: `-1 0 ${SIZE + 4} ${height}`, width: SIZE + 4, height }, ...cells, ...diamonds));
    li.title = `${open ? 'filling' : 'ended'}: ${[...slots].map((letter) => SLOTS[letter]).join(', ')}; ${[...parities].map((letter) => PARITIES[letter]).join(', ')}${over ? `; full after ${time(filled)}, over after ${time(over)}` : ''}`;
  }
}
