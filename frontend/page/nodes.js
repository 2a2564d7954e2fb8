// The same per node: what stands on one machine is slow together, and then it is the machine that has to go.

import { h, keyed, say, set, show } from './dom.js';
import * as ctl from './ctl.js';
import { count, many } from './words.js';

/** Instances by node: how slow they are against all others, the slowest node first. Nothing where no node is known. */
export function nodes(rows, factor) {
  const by = new Map();
  for (const row of rows) if (row.node) by.set(row.node, [...(by.get(row.node) ?? []), row]);
  const table = [...by].map(([node, own]) => {
    const slow = (some) => some.map((row) => row.slowness).filter((value) => value !== null).sort((a, b) => a - b);
    const [is, others] = [middle(slow(own)), middle(slow(rows.filter((row) => row.node !== node)))];
    const ratio = is !== null && others ? is / others : null;
    const usable = own.filter((row) => row.state === 'ready' && !row.reason);
    return {
      node, ratio, rows: own, zone: own[0].zone ?? null, usable: usable.length,
      jobs: own.reduce((sum, row) => sum + (row.jobs * 1000) / row.over_ms, 0),
      // One slow instance is that instance; a node is slow where all it has is.
      slow: ratio !== null && ratio >= factor && own.length > 1 && slow(own)[0] / others >= factor * 0.75,
      out: own.length - usable.length,
    };
  });
  return table.length > 1 ? table.sort((a, b) => (b.ratio ?? 0) - (a.ratio ?? 0) || a.node.localeCompare(b.node, 'en', { numeric: true })) : [];
}

function middle(sorted) {
  return sorted.length ? sorted[sorted.length >> 1] : null;
}

const SHOWN = 8;

export class Nodes {
  constructor(root, order) {
    this.order = order;
    this.lead = h('p', { class: 'lead' });
    this.body = h('tbody');
    this.table = h('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Nodes' }, h('table', {}, h('caption', { class: 'unseen' }, 'Nodes, the slowest first'),
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Node'), h('th', { scope: 'col' }, 'Against others'), h('th', { scope: 'col', class: 'roomy' }, 'Jobs / s'),
        h('th', { scope: 'col' }, 'In service'), h('th', { scope: 'col' }, h('span', { class: 'unseen' }, 'Orders')))), this.body));
    this.more = h('button', { type: 'button', class: 'quiet', onclick: () => { this.whole = !this.whole; this.draw(this.list, this.may); } });
    root.append(this.lead, this.table, this.more);
  }

  draw(list, may) {
    this.list = list;
    this.may = may;
    const slow = list.filter((node) => node.slow);
    show(this.table, list.length > 0);
    show(this.more, list.length > SHOWN);
    say(this.more, this.whole ? 'Show fewer' : `Show all ${list.length} nodes`);
    set(this.lead, 'data-tone', slow.length ? 'bad' : null);
    say(this.lead, !list.length ? 'All instances stand on one node, or it is not known where they stand.'
      : slow.length ? slow.map((node) => `${node.node} is ${node.ratio.toFixed(1)} times slower than the others: cordon it.`).join(' ')
        : `${many(list.length, 'node')}, none much slower than the others.`);
    keyed(this.body, this.whole ? list : list.slice(0, SHOWN), ({ node }) => node, (node) => this.row(node.node), (tr, node) => {
      const [name, ratio, jobs, usable, orders] = tr.children;
      const known = tr.order;
      Object.assign(known, { node });
      say(name.querySelector('small'), node.zone ?? '');
      say(ratio, node.ratio === null ? '–' : `${node.ratio.toFixed(2)}×`);
      say(jobs, count(node.jobs));
      say(usable, `${node.usable} of ${node.rows.length}`);
      set(tr, 'data-tone', node.slow ? 'bad' : node.out ? 'warn' : null);
      show(orders.firstChild, may && node.slow && node.usable > 0);
    });
  }

  row(name) {
    const known = {};
    const button = h('button', { type: 'button', onclick: () => this.drain(known.node) }, 'Drain');
    button.setAttribute('aria-label', `Drain the instances of ${name}`);
    const tr = h('tr', {}, h('th', { scope: 'row' }, h('span', { class: 'name' }, name), h('small')), h('td'), h('td', { class: 'roomy' }), h('td'), h('td', { class: 'orders' }, button));
    tr.order = known;
    return tr;
  }

  drain(node) {
    const numbers = node.rows.filter((row) => row.state === 'ready').map((row) => row.number);
    this.order('drain', numbers, {
      title: `Drain ${node.node}?`, yes: `Drain ${many(numbers.length, 'instance')}`,
      text: `Its ${many(numbers.length, 'instance')} get no more work and end what they hold. The others take over; with ${many(node.rows.length, 'instance')} fewer.`,
      line: ctl.order('drain', ...numbers),
    });
  }
}
