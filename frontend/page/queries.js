// Why was this one approximate? The latest queries that are kept, and the timeline of one by its id.

import { h, keyed, say, set, show } from './dom.js';
import { call } from './key.js';
import * as ctl from './ctl.js';
import { told } from './timeline.js';
import { clock, count, time } from './words.js';

const SHOWN = 12;

export class Queries {
  constructor(root) {
    this.word = h('input', { type: 'search', id: 'query', placeholder: 'query or request id', spellcheck: 'false', autocomplete: 'off' });
    this.outcome = h('select', { id: 'outcome' });
    this.slowest = h('input', { type: 'checkbox', id: 'slowest' });
    this.form = h('form', { class: 'tools', onsubmit: (event) => { event.preventDefault(); this.look(); } },
      h('label', { for: 'query' }, 'Id'), this.word, h('label', { for: 'outcome' }, 'Outcome'), this.outcome,
      h('label', { for: 'slowest', class: 'check' }, this.slowest, 'slowest first'), h('button', {}, 'Look'));
    this.status = h('p', { class: 'soft', role: 'status' });
    this.body = h('tbody');
    this.table = h('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Queries' }, h('table', { class: 'queries' }, h('caption', { class: 'unseen' }, 'Queries that are kept'),
      h('thead', {}, h('tr', {}, ['Query', 'When', 'Outcome', 'Took', 'Alone'].map((name) => h('th', { scope: 'col' }, name)))), this.body));
    this.line = h('code', { class: 'line' });
    this.one = h('div', { class: 'one' });
    this.title = h('h3', { tabindex: -1 });
    show(this.table, false);
    root.append(this.form, this.status, this.table, this.title, this.line, this.one);
    for (const part of [this.title, this.line]) show(part, false);
  }

  /** Another model, or other outcomes. */
  draw(model, outcomes) {
    if (this.outcome.children.length !== outcomes.length + 1) {
      this.outcome.replaceChildren(h('option', { value: '' }, 'any'), ...outcomes.map((name) => h('option', {}, name)));
    }
    if (this.model !== model.name) {
      this.model = model.name;
      this.close();
      this.look();
    }
  }

  close() {
    for (const part of [this.title, this.line]) show(part, false);
    this.one.replaceChildren();
    set(this.body.querySelector('[aria-current]') ?? this.body, 'aria-current', null);
  }

  async look() {
    const word = this.word.value.trim();
    // Ours are of 16 digits; whatever else there is, is the client's own.
    if (/^[0-9a-f]{16}$/.test(word)) return this.tell(word);
    const wanted = new URLSearchParams({ model: this.model, limit: SHOWN });
    if (word) wanted.set('request', word);
    if (this.outcome.value) wanted.set('outcome', this.outcome.value);
    if (this.slowest.checked) wanted.set('slowest', 'true');
    return this.fetched(async () => {
      const { kept, since, queries } = await call('GET', `/admin/v1/queries?${wanted}`);
      show(this.table, queries.length > 0);
      say(this.status, !queries.length ? 'No such query is kept.' : `${count(kept)} queries are kept, from ${clock(since)} on: all that were not exact or were slow, and a few others.`);
      keyed(this.body, queries, ({ id }) => id, (query) => h('tr', {}, h('th', { scope: 'row' }, h('button', { type: 'button', class: 'link', onclick: () => this.tell(query.id, true) }, query.request || query.id)),
        h('td'), h('td', {}, h('span', { class: `badge ${query.outcome}` })), h('td'), h('td')), (tr, query) => {
        const [, when, outcome, took, alone] = tr.children;
        say(when, clock(query.at));
        say(outcome.firstChild, query.outcome);
        say(took, time(query.took_us));
        say(alone, query.alone_us === null ? 'not yet' : time(query.alone_us));
      });
    });
  }

  async tell(id, focus = false) {
    return this.fetched(async () => {
      const query = await call('GET', `/admin/v1/queries/${encodeURIComponent(id)}`);
      say(this.title, `Query ${query.request || query.id}: ${query.outcome}`);
      say(this.line, ctl.query(query.id));
      for (const part of [this.title, this.line]) show(part, true);
      this.one.replaceChildren(...told(query));
      for (const row of this.body.children) set(row, 'aria-current', row.dataset.key === id ? 'true' : null);
      if (focus) this.title.focus();
    });
  }

  async fetched(work) {
    try {
      await work();
    } catch (error) {
      say(this.status, `${error.message}.`);
    }
  }
}
