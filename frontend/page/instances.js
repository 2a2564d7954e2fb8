// Instances as a table: who is slow against the pool, who is out of service and why.

import { h, keyed, s, say, set, show } from './dom.js';
import { Spark } from './chart.js';
import * as ctl from './ctl.js';
import { count, many, share, span, time } from './words.js';

const SHOWN = 24;
/** A job that is held longer than this many milliseconds is worth a word. */
const LONG = 1000;
const TROUBLE = { refused: 0, ejected: 1, connecting: 2, draining: 3, ready: 5 };

/** The state in words. */
export function state(row) {
  if (row.state === 'ejected') return row.reason === 'order' ? 'ejected by order' : `ejected: ${row.reason ?? 'unknown'}`;
  if (row.state === 'ready' && row.reason) return `in part: ${row.reason}`;
  return row.state;
}

/** What else there is to say of it. */
export function remark(row) {
  const said = [];
  if (row.problem) said.push(row.problem);
  if (row.oldest_ms > LONG) said.push(`silent: holds a job for ${span(row.oldest_ms)}`);
  if (row.retry_in_ms !== null && row.state === 'ejected') said.push(`probe in ${span(row.retry_in_ms)}`);
  return said.join('; ');
}

export function tone(row) {
  if (row.state === 'refused' || row.state === 'ejected' || (row.state === 'ready' && row.oldest_ms > LONG)) return 'bad';
  if (row.state !== 'ready' || row.reason) return 'warn';
  return row.slowness >= 2 ? 'warn' : null;
}

/** In the order of a column: `trouble` puts those first that need somebody. */
export function sorted(rows, column, down) {
  const of = {
    trouble: (row) => (tone(row) === 'bad' ? 1000 - TROUBLE[row.state] : tone(row) === 'warn' ? 500 - TROUBLE[row.state] : 0) + Math.min(100, row.slowness ?? 0),
    state: (row) => TROUBLE[row.state] * -1, jobs: (row) => row.jobs, agreed: (row) => (row.compared ? row.agreed / row.compared : null),
  }[column] ?? ((row) => row[column]);
  const order = (a, b) => {
    const [x, y] = [of(a), of(b)];
    if (x === null || y === null || x === undefined || y === undefined) return (x ?? null) === (y ?? null) ? 0 : (x ?? null) === null ? 1 : -1;
    const less = typeof x === 'string' ? x.localeCompare(y, 'en', { numeric: true }) : x - y;
    return down ? -less : less;
  };
  return [...rows].sort((a, b) => order(a, b) || a.number - b.number);
}

const COLUMNS = [
  ['number', 'Instance'], ['node', 'Node', 'roomy'], ['state', 'State'], ['jobs', 'Jobs / s', 'roomy'], ['inflight', 'Holds', 'roomy'], ['p50_us', 'p50'], ['p99_us', 'p99', 'roomy'],
  ['slowness', 'Against pool'], ['agreed', 'Agrees', 'roomy'],
];

export class Instances {
  constructor(root, order) {
    Object.assign(this, { order, column: 'trouble', down: true, sparks: new WeakMap() });
    this.find = h('input', { type: 'search', id: 'find', placeholder: 'address, node or state', oninput: () => this.redraw() });
    this.lead = h('p', { class: 'lead' });
    this.heads = COLUMNS.map(([column, name, kind]) => h('th', { scope: 'col', class: kind ?? null, 'data-column': column },
      h('button', { type: 'button', onclick: () => this.by(column) }, name)));
    this.body = h('tbody');
    this.trouble = h('button', { type: 'button', class: 'quiet', onclick: () => this.by('trouble') }, 'Trouble first');
    this.table = h('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Instances' }, h('table', { class: 'instances' }, h('caption', { class: 'unseen' }, 'Instances; the buttons in the heads sort'),
      h('thead', {}, h('tr', {}, this.heads, h('th', { scope: 'col' }, h('span', { class: 'unseen' }, 'Orders')))), this.body));
    this.more = h('button', { type: 'button', class: 'quiet', onclick: () => { this.whole = !this.whole; this.redraw(); } });
    root.append(h('div', { class: 'tools' }, this.lead, h('label', { for: 'find' }, 'Find'), this.find, this.trouble), this.table, this.more);
  }

  by(column) {
    this.down = this.column === column ? !this.down : column !== 'number' && column !== 'node';
    if (column === 'trouble') this.down = true;
    this.column = column;
    this.redraw();
  }

  draw(rows, series, may) {
    Object.assign(this, { rows, series, may });
    this.redraw();
  }

  redraw() {
    const { rows = [], may } = this;
    const word = this.find.value.trim().toLowerCase();
    const found = rows.filter((row) => !word || `${row.number} ${row.address} ${row.node ?? ''} ${state(row)}`.toLowerCase().includes(word));
    const list = sorted(found, this.column, this.down);
    const ready = rows.filter((row) => row.state === 'ready').length;
    say(this.lead, !rows.length ? 'No instances. Start one (parm worker --models FOLDER) and name it with --worker, or add it with POST /admin/v1/instances.'
      : `${ready} of ${many(rows.length, 'instance')} in service${word ? `; ${count(found.length)} found` : ''}.`);
    show(this.table, rows.length > 0);
    show(this.more, found.length > SHOWN);
    say(this.more, this.whole ? 'Show fewer' : `Show all ${count(found.length)} instances`);
    for (const head of this.heads) {
      set(head, 'aria-sort', head.dataset.column !== this.column ? null : this.down ? 'descending' : 'ascending');
    }
    set(this.trouble, 'aria-pressed', String(this.column === 'trouble'));
    keyed(this.body, this.whole ? list : list.slice(0, SHOWN), (row) => row.number, (row) => this.made(row), (tr, row) => this.update(tr, row, may));
  }

  made(row) {
    const spark = new Spark(64, 18);
    const bar = s('svg', { viewBox: '0 0 40 6', class: 'ratio', 'aria-hidden': 'true' }, s('rect', { class: 'rail', width: 40, height: 6 }), s('rect', { class: 'filled', height: 6 }), s('path', { d: 'M10 -1V7' }));
    const buttons = ['drain', 'eject', 'undrain'].map((order) => {
      const name = { drain: 'Drain', eject: 'Eject', undrain: 'Return' }[order];
      return h('button', { type: 'button', 'data-order': order, 'aria-label': `${name} instance ${row.number}`, onclick: () => this.ask(order, tr.row) }, name);
    });
    const tr = h('tr', {}, h('th', { scope: 'row' }, h('b', {}, `${row.number}`), ' ', h('span', { class: 'name' })), h('td', { class: 'roomy' }, h('span', { class: 'name' })),
      h('td', { class: 'state' }, h('span', { class: 'badge' }), h('small')), h('td', { class: 'roomy' }), h('td', { class: 'roomy' }), h('td'), h('td', { class: 'roomy' }),
      h('td', { class: 'against' }, h('span', { class: 'figure' }), bar, spark.root), h('td', { class: 'roomy' }), h('td', { class: 'orders' }, buttons));
    this.sparks.set(tr, spark);
    return tr;
  }

  update(tr, row, may) {
    tr.row = row;
    const [name, node, status, jobs, holds, p50, p99, against, agrees, orders] = tr.children;
    const address = name.querySelector('.name');
    say(address, row.address?.replace(/^http:\/\//, '') ?? '');
    set(address, 'title', row.address);
    say(node.firstChild, row.node ?? '–');
    set(node.firstChild, 'title', row.node);
    say(status.querySelector('.badge'), state(row));
    say(status.querySelector('small'), remark(row));
    set(tr, 'data-tone', tone(row));
    say(jobs, count((row.jobs * 1000) / row.over_ms));
    say(holds, `${row.inflight} of ${row.slots}`);
    say(p50, time(row.p50_us));
    say(p99, time(row.p99_us));
    say(against.querySelector('.figure'), row.slowness === null ? '–' : `${row.slowness.toFixed(2)}×`);
    set(against.querySelector('.filled'), 'width', Math.min(40, (row.slowness ?? 0) * 10).toFixed(1));
    this.sparks.get(tr).draw(this.series.get(row.number) ?? [], 0, 2);
    say(agrees, row.compared ? share(row.agreed / row.compared) : '–');
    const well = row.state === 'ready' || row.state === 'connecting';
    for (const button of orders.children) show(button, may && (button.dataset.order === 'undrain' ? !well && row.state !== 'refused' : button.dataset.order === 'drain' ? row.state === 'ready' : row.state === 'ready' || row.state === 'draining'));
  }

  ask(order, row) {
    const said = {
      drain: ['Drain', 'It gets no more work and ends what it holds.'],
      eject: ['Eject', 'Its work is taken away at once and done elsewhere.'],
      undrain: ['Return', 'It takes work again, a little at first.'],
    }[order];
    this.order(order, [row.number], { title: `${said[0]} instance ${row.number}?`, yes: `${said[0]} it`, text: `${row.address}${row.node ? ` on ${row.node}` : ''}. ${said[1]}`, line: ctl.order(order, row.number) });
  }
}
