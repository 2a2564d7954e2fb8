// Kept queries: a list of the latest, and the timeline of one by its id.

import { h, say, set, show } from './dom.js';
import { call } from './key.js';
import { Table } from './table.js';
import * as ctl from './ctl.js';
import { told } from './timeline.js';
import { clock, count, time } from './words.js';

export class Queries {
  constructor(root) {
    this.word = h('input', { type: 'search', id: 'query', placeholder: 'query or request id', spellcheck: 'false', autocomplete: 'off' });
    this.outcome = h('select', { id: 'outcome' });
    this.slowest = h('input', { type: 'checkbox', id: 'slowest' });
    const form = h('form.tools', { onsubmit: (event) => { event.preventDefault(); this.look(); } },
      h('label', { for: 'query' }, 'Id'), this.word, h('label', { for: 'outcome' }, 'Outcome'), this.outcome,
      h('label.check', this.slowest, 'slowest first'), h('button', 'Look'));
    this.status = h('p.soft', { role: 'status' });
    this.table = new Table('Queries', [
      { head: 'Query', fill: (cell, { id, request }) => cell.firstChild ?? cell.append(h('button', { class: 'link', onclick: () => this.tell(id) }, request || id)) },
      { head: 'When', kind: 'roomy', text: ({ at }) => clock(at) },
      { head: 'Outcome', kind: 'text', fill: (cell, { outcome }) => cell.firstChild ?? cell.append(h('span', { class: `outcome ${outcome}` }, h('i'), outcome)) },
      { head: 'Took', text: ({ took_us }) => time(took_us) },
      { head: 'Alone', text: ({ alone_us }) => (alone_us === null ? 'not yet' : time(alone_us)) },
    ]);
    this.title = h('h3', { tabindex: -1 });
    this.one = h('div', { hidden: true }, this.title, (this.line = h('code.line')), (this.told = h('div')));
    root.append(form, this.status, this.table.root, this.one);
  }

  /** Another model, or other outcomes. */
  draw(model, outcomes) {
    if (!this.outcome.children.length) this.outcome.append(h('option', { value: '' }, 'any'), ...outcomes.map((name) => h('option', name)));
    if (this.model === model.name) return;
    this.model = model.name;
    show(this.one, false);
    this.look();
  }

  look() {
    const word = this.word.value.trim();
    // Query ids have 16 digits; other text is a client's request id.
    if (/^[0-9a-f]{16}$/.test(word)) return this.tell(word);
    const wanted = new URLSearchParams({ model: this.model, limit: 8, ...(word && { request: word }), ...(this.outcome.value && { outcome: this.outcome.value }),
      ...(this.slowest.checked && { slowest: true }) });
    return this.fetched(`?${wanted}`, ({ kept, since, queries }) => {
      say(this.status, queries.length ? `${count(kept)} queries are kept, from ${clock(since)} on: all that were not exact or were slow, and a few others.` : 'No such query is kept yet.');
      show(this.table.root, queries.length > 0);
      this.table.draw(queries, ({ id }) => id);
    });
  }

  tell(id) {
    return this.fetched(`/${encodeURIComponent(id)}`, (query) => {
      say(this.title, `Query ${query.request || query.id}: ${query.outcome}`);
      say(this.line, ctl.query(query.id));
      this.told.replaceChildren(...told(query));
      show(this.one, true);
      for (const row of this.table.body.children) set(row, 'aria-current', row.dataset.key === id && 'true');
      this.title.focus();
    });
  }

  async fetched(path, use) {
    try {
      use(await call('GET', `/admin/v1/queries${path}`));
    } catch (error) {
      say(this.status, `${error.message}.`);
    }
  }
}
