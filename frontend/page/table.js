// A table that keeps its rows between updates; columns define their cells.

import { h, keyed, say, set } from './dom.js';

/** Columns are `{ head, kind, text }`, or `fill(cell, row)` for more than text; with `by` their head sorts. */
export class Table {
  constructor(label, columns, sort) {
    this.columns = columns;
    this.heads = columns.map(({ head, kind, by }) => h('th', { scope: 'col', class: kind },
      by ? h('button', { onclick: () => sort(by) }, head) : h('span', { class: kind === 'orders' ? 'unseen' : null }, head)));
    this.body = h('tbody');
    this.root = h('div.wide', { tabindex: 0, role: 'region', 'aria-label': label }, h('table', h('thead', h('tr', this.heads)), this.body));
  }

  draw(rows, key, tone = () => null) {
    const made = () => h('tr', this.columns.map(({ kind }, at) => (at ? h('td', { class: kind }) : h('th', { scope: 'row' }))));
    keyed(this.body, rows, key, made, (tr, row) => {
      set(tr, 'data-tone', tone(row));
      this.columns.forEach(({ text, fill }, at) => (fill ? fill(tr.children[at], row) : say(tr.children[at], text(row))));
    });
  }

  sorted(by, down) {
    this.columns.forEach((column, at) => set(this.heads[at], 'aria-sort', column.by !== by || !by ? null : down ? 'descending' : 'ascending'));
  }
}
