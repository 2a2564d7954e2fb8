// Slowness per node: if all instances of a node are slow, the machine is the cause.

import { h, more, say, set, show } from './dom.js';
import { Table } from './table.js';
import * as ctl from './ctl.js';
import { apart, count, many } from './words.js';

/** Instances by node, with their slowness against all others; the slowest first. Empty with fewer than two known nodes. */
export function nodes(rows, factor) {
  const by = new Map();
  for (const row of rows) if (row.node) by.set(row.node, [...(by.get(row.node) ?? []), row]);
  if (by.size < 2) return [];
  const slow = (some) => some.map((row) => row.slowness).filter((value) => value !== null).sort((a, b) => a - b);
  const middle = (sorted) => sorted[sorted.length >> 1] ?? null;
  return [...by].map(([node, own]) => {
    const [is, others] = [slow(own), middle(slow(rows.filter((row) => row.node !== node)))];
    const ratio = is.length && others ? middle(is) / others : null;
    return {
      node, ratio, rows: own, zone: own[0].zone ?? '', usable: own.filter((row) => row.state === 'ready').length,
      jobs: own.reduce((sum, row) => sum + (row.jobs * 1000) / row.over_ms, 0),
      // A node is slow only if all its instances are.
      slow: ratio >= factor && own.length > 1 && is[0] / others >= factor * 0.75,
    };
  }).sort((a, b) => b.ratio - a.ratio || a.node.localeCompare(b.node, 'en', { numeric: true }));
}

export const cordon = ({ node, ratio }) => `Node ${node} is ${ratio.toFixed(1)} times slower than the others: cordon it.`;

export class Nodes {
  constructor(root, order) {
    this.lead = h('p.lead');
    this.table = new Table('Nodes', [
      { head: 'Node', fill: (cell, { node, zone }) => {
        if (!cell.firstChild) cell.append(h('span.name', { title: node }), h('small', zone));
        say(cell.firstChild, this.names.get(node));
      } },
      { head: 'Against others', text: ({ ratio }) => (ratio === null ? '–' : `${ratio.toFixed(2)}×`) },
      { head: 'Jobs / s', kind: 'roomy', text: ({ jobs }) => count(jobs) },
      { head: 'In service', text: ({ usable, rows }) => `${usable} of ${rows.length}` },
      { head: 'Orders', kind: 'orders', fill: (cell, node) => {
        cell.node = node;
        if (!cell.firstChild) cell.append(h('button', { 'aria-label': `Drain node ${node.node}`, onclick: () => this.drain(cell.node) }, 'Drain'));
        show(cell.firstChild, this.may && node.slow && node.usable > 0);
      } },
    ]);
    this.order = order;
    this.more = more(() => this.draw(this.list, this.may), 8);
    root.append(this.lead, this.table.root, this.more);
  }

  draw(list, may) {
    Object.assign(this, { list, may, names: apart(list.map(({ node }) => node)) });
    const slow = list.filter((node) => node.slow);
    set(this.lead, 'data-tone', slow.length ? 'bad' : null);
    say(this.lead, slow.map(cordon).join(' ') || (list.length ? `${many(list.length, 'node')}, none much slower than the others.` : 'Nodes of the instances are unknown.'));
    show(this.table.root, list.length > 0);
    this.table.draw(this.more.cut(list), ({ node }) => node, ({ slow, usable, rows }) => (slow ? 'bad' : usable < rows.length ? 'warn' : null));
  }

  drain({ node, rows }) {
    const numbers = rows.filter((row) => row.state === 'ready').map((row) => row.number);
    const some = many(numbers.length, 'instance');
    this.order('drain', numbers, { title: `Drain ${node}?`, yes: `Drain ${some}`, line: ctl.order('drain', ...numbers),
      text: `Its ${some} get no more work and finish their jobs. The others take over.` });
  }
}
