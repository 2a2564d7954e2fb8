// Instances as a table: their speed relative to the pool, and which are out of service and why.

import { h, more, say, set, show } from './dom.js';
import { Spark } from './chart.js';
import { Table } from './table.js';
import * as ctl from './ctl.js';
import { apart, count, many, share, span, time } from './words.js';

/** Instances this many times as slow as the pool have a mark in their series. */
const SLOW = 2;
/** Conditions of instances that give no answers, or wrong ones. */
const BAD = ['silent', 'failing', 'unreachable', 'wrong'];
const ORDERS = {
  drain: ['Drain', 'It gets no more work and finishes its jobs.', ['ready']],
  eject: ['Eject', 'Its work is retried elsewhere at once.', ['ready', 'draining']],
  undrain: ['Return', 'It gets work again, a little at first.', ['draining', 'ejected']],
};

const host = ({ address = '' }) => address.replace(/^\w+:\/\//, '');

export function state(row) {
  if (row.state === 'ejected') return row.reason === 'order' ? 'ejected by order' : `ejected: ${row.reason ?? 'unknown'}`;
  if (row.state !== 'ready') return row.state;
  return row.reason ? `ready, ${row.reason}` : 'ready';
}

/** Further remarks. */
export function remark(row) {
  return [row.problem, row.slower > 1 && `${row.slower.toFixed(1)}x slower`, row.reason === 'silent' && row.oldest_ms !== null && `holds a job for ${span(row.oldest_ms)}`,
    row.state === 'ejected' && row.retry_in_ms !== null && `trial in ${span(row.retry_in_ms)}`].filter(Boolean).join('; ');
}

export function tone(row) {
  if (row.state === 'refused' || row.state === 'ejected' || BAD.includes(row.reason)) return 'bad';
  return row.state !== 'ready' || row.reason ? 'warn' : null;
}

const VALUES = {
  trouble: (row) => ({ bad: 2000, warn: 1000 }[tone(row)] ?? 0) + Math.min(500, row.slowness ?? 0),
  agreed: (row) => (row.compared ? row.agreed / row.compared : null),
  state,
};

/** Sorts by a column with unknown values last; `trouble` puts instances with problems first. */
export function sorted(rows, column, down) {
  const of = VALUES[column] ?? ((row) => row[column] ?? null);
  return [...rows].sort((a, b) => {
    const [x, y] = [of(a), of(b)];
    if (x === null || y === null) return (x === null) - (y === null) || a.number - b.number;
    const less = typeof x === 'string' ? x.localeCompare(y, 'en', { numeric: true }) : x - y;
    return (down ? -less : less) || a.number - b.number;
  });
}

export class Instances {
  constructor(root, order) {
    Object.assign(this, { order, column: 'trouble', down: true, rows: [] });
    this.find = h('input', { type: 'search', id: 'find', placeholder: 'address, node or state', oninput: () => this.redraw() });
    this.lead = h('p.lead');
    this.trouble = h('button', { class: 'quiet', onclick: () => this.by('trouble') }, 'Trouble first');
    this.table = new Table('Instances', [
      { head: 'Instance', by: 'number', fill: (cell, { number, address }) => {
        if (!cell.firstChild) cell.append(h('b', `${number}`), ' ', h('span.name', { title: address }));
        say(cell.lastChild, this.names.get(host({ address })) ?? '');
      } },
      { head: 'Node', by: 'node', kind: 'roomy text', fill: (cell, { node }) => {
        if (!cell.firstChild) cell.append(h('span.name', { title: node }));
        say(cell.firstChild, this.nodes.get(node) ?? '–');
      } },
      { head: 'State', by: 'state', kind: 'text', fill: (cell, row) => {
        if (!cell.firstChild) cell.append(h('span.badge'), h('small'));
        say(cell.firstChild, state(row));
        say(cell.lastChild, remark(row));
      } },
      { head: 'Jobs / s', by: 'jobs', kind: 'roomy', text: (row) => count((row.jobs * 1000) / row.over_ms) },
      { head: 'Holds', by: 'inflight', kind: 'roomy', text: (row) => `${row.inflight} of ${row.slots}` },
      { head: 'p50', by: 'p50_us', kind: 'roomy', text: (row) => time(row.p50_us) },
      { head: 'p99', by: 'p99_us', kind: 'roomy', text: (row) => time(row.p99_us) },
      { head: 'Against pool', by: 'slowness', kind: 'against', fill: (cell, { number, slowness }) => {
        if (!cell.firstChild) cell.append(h('span'), (cell.spark = new Spark(64, 18)).root);
        say(cell.firstChild, slowness === null ? '–' : `${slowness.toFixed(2)}×`);
        cell.spark.draw(this.series.get(number) ?? [], SLOW);
      } },
      { head: 'Agrees', by: 'agreed', kind: 'roomy', text: (row) => (row.compared ? share(row.agreed / row.compared) : '–') },
      { head: 'Orders', kind: 'orders', fill: (cell, row) => this.orders(cell, row) },
    ], (column) => this.by(column));
    this.more = more(() => this.redraw(), 24);
    this.tools = h('span.tools', h('label', { for: 'find' }, 'Find'), this.find, this.trouble);
    root.append(h('div.tools', this.lead, this.tools), this.table.root, this.more);
  }

  by(column) {
    this.down = column === 'trouble' || (this.column === column ? !this.down : column !== 'number' && column !== 'node');
    this.column = column;
    this.redraw();
  }

  draw(rows, series, may) {
    const names = (of) => apart([...new Set(rows.map(of).filter(Boolean))]);
    Object.assign(this, { rows, series, may, names: names(host), nodes: names(({ node }) => node) });
    this.redraw();
  }

  redraw() {
    const { rows, column, down } = this;
    const word = this.find.value.trim().toLowerCase();
    const found = rows.filter((row) => `${row.number} ${row.address} ${row.node} ${state(row)}`.toLowerCase().includes(word));
    const ready = rows.filter((row) => row.state === 'ready').length;
    say(this.lead, !rows.length ? 'No instances yet. Start one with parm worker, and name it with --worker or in the workers file.'
      : `${ready} of ${many(rows.length, 'instance')} in service${word ? `; ${count(found.length)} found` : ''}.`);
    for (const part of [this.table.root, this.tools]) show(part, rows.length > 0);
    this.table.sorted(column, down);
    set(this.trouble, 'aria-pressed', String(column === 'trouble'));
    this.table.draw(this.more.cut(sorted(found, column, down)), ({ number }) => number, tone);
  }

  orders(cell, row) {
    cell.row = row;
    if (!cell.firstChild) {
      cell.append(...Object.entries(ORDERS).map(([order, [name]]) => h('button', { 'data-order': order,
        'aria-label': `${name} instance ${row.number}`, onclick: () => this.ask(order, cell.row) }, name)));
    }
    for (const button of cell.children) show(button, this.may && ORDERS[button.dataset.order][2].includes(row.state));
  }

  ask(order, { number, address, node }) {
    const [name, text] = ORDERS[order];
    this.order(order, [number], { title: `${name} instance ${number}?`, yes: `${name} it`, text: `${address}${node ? ` on ${node}` : ''}. ${text}`, line: ctl.order(order, number) });
  }
}
