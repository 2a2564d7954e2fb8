// Settings that are useful to change at run time. Each change is confirmed first, next to the equivalent command.

import { h, say, set, show } from './dom.js';
import * as ctl from './ctl.js';
import { call } from './key.js';
import { many } from './words.js';

const share = { percent: true, min: 0, max: 100, step: 'any' };
const number = { min: 0, max: 100, step: 'any' };
const whole = { whole: true, min: 1, max: 65535, step: 1 };
const [CODED, HEDGED] = [['parm', 'parm+'], ['hedge', 'parm+', 'stand-in']];

/** `only`: policies with this setting; `percent`: shown in percent, sent as a fraction. */
export const FIELDS = Object.entries({
  Policy: [{ path: 'policy', label: 'Policy', about: 'What hides slow and dead instances' }],
  'Stand-ins': [
    { path: 'stand_in.bound', label: 'Bound', about: 'Most answers of any minute that may be approximate', ...share, only: ['stand-in'] },
    { path: 'stand_in.late_factor', label: 'Late', about: 'Age from which an approximate answer is given, in medians', ...number, only: ['stand-in'] },
  ],
  Coding: [
    { path: 'coding.k', label: 'k', about: 'Queries per coding group', ...whole, max: 64, only: CODED },
    { path: 'coding.r', label: 'r', about: 'Parities per group', ...whole, max: 16, only: CODED },
    { path: 'coding.grace.factor', label: 'Grace', about: 'Delay of a reconstruction, in medians', ...number, only: ['parm+', 'approximate-backup'] },
  ],
  Hedges: [
    { path: 'hedge.budget.ratio', label: 'Budget', about: 'Jobs that may be hedged; also sets when a job is late', ...share, only: HEDGED },
  ],
  Limits: [
    { path: 'queue_limit', label: 'Queue', about: 'Queries that may wait', ...whole, max: 1e6 },
  ],
}).flatMap(([group, fields]) => fields.map((field) => ({ group, ...field })));

/** Text of a field for a value. */
export const shown = (field, value) => (field.percent ? String(Math.round(value * 1e6) / 1e4) : String(value));

/** Value of a field's text; `null` if it is invalid. */
export function value(field, text) {
  if (field.path === 'policy') return text;
  const is = Number(text);
  if (text.trim() === '' || !(is >= field.min && is <= field.max) || (field.whole && !Number.isInteger(is))) return null;
  return field.percent ? Math.round(is * 1e6) / 1e8 : is;
}

export class Controls {
  constructor(root, confirm, refused) {
    Object.assign(this, { confirm, refused, rows: [] });
    this.lead = h('p.lead');
    this.groups = h('div.fields');
    this.review = h('button.main');
    this.undo = h('button', { type: 'button', onclick: () => this.fill() }, 'Undo');
    this.form = h('form', { hidden: true, novalidate: true, onsubmit: (event) => { event.preventDefault(); this.ask(); }, oninput: () => this.changed() },
      this.groups, h('div.buttons', this.undo, this.review));
    root.append(this.lead, this.form);
  }

  /** Follows a model: its settings are fetched when they change. */
  async draw(model, policies, may) {
    const of = `${model.name} ${model.revision} ${may}`;
    if (this.of === of) return;
    this.of = of;
    const edited = this.model?.name === model.name ? this.changes() : {};
    if (this.model?.name !== model.name) this.settings = null;
    Object.assign(this, { model, may });
    try {
      const settings = await call('GET', `/admin/v1/settings/${encodeURIComponent(model.name)}`);
      if (this.of !== of) return;
      this.settings = settings;
    } catch (error) {
      this.of = null;
      return say(this.lead, `Cannot read the settings: ${error.message}.`);
    }
    if (!this.rows.length) this.build(policies);
    say(this.lead, may ? `Changes for ${model.name} take effect at once and last until the next start; the configuration file is not changed.` : 'This key may read the settings but not change them.');
    set(this.lead, 'data-tone', !may && 'warn');
    show(this.form, true);
    this.fill(edited);
  }

  build(policies) {
    for (const name of new Set(FIELDS.map(({ group }) => group))) {
      const rows = FIELDS.filter(({ group }) => group === name).map((field) => {
        const id = `set-${field.path.replace(/[._]/g, '-')}`;
        const { min, max, step } = field;
        const input = step ? h('input', { id, type: 'number', min, max, step }) : h('select', { id }, policies.map((policy) => h('option', policy)));
        const line = h('code.line', { id: `${id}-line` });
        set(input, 'aria-describedby', line.id);
        const row = h('div.field', h('label', { for: id }, field.label, h('small', field.about)), h('span.entry', input, h('span.unit', field.percent ? '%' : '')), line);
        this.rows.push({ field, input, line, row });
        return row;
      });
      this.groups.append(h('fieldset', h('legend', name), rows));
    }
  }

  /** Shows the effective settings, and pending changes. */
  fill(edited = {}) {
    for (const { field, input } of this.rows) {
      input.value = shown(field, edited[field.path] ?? ctl.at(this.settings, field.path));
      input.disabled = !this.may;
    }
    this.changed();
  }

  /** Differences from the effective settings, by path; `null` for an invalid value. */
  changes() {
    return Object.fromEntries(this.rows.filter(({ row }) => !row.hidden).map(({ field, input }) => [field.path, value(field, input.value)])
      .filter(([path, is]) => is !== ctl.at(this.settings, path)));
  }

  changed() {
    const policy = this.rows[0].input.value;
    for (const { field, row } of this.rows) show(row, !field.only || field.only.includes(policy));
    for (const group of this.groups.children) show(group, group.querySelector('.field:not([hidden])') !== null);
    const changes = this.changes();
    for (const { field, input, line, row } of this.rows) {
      const is = value(field, input.value);
      set(row, 'data-changed', field.path in changes);
      set(input, 'aria-invalid', is === null && 'true');
      say(line, is === null ? `between ${field.min} and ${field.max}` : ctl.set(this.model.name, { [field.path]: is }));
    }
    const number = Object.keys(changes).length;
    this.review.disabled = !number || Object.values(changes).includes(null);
    say(this.review, number ? `Review ${many(number, 'change')}…` : 'Nothing changed');
    show(this.review, this.may);
    show(this.undo, this.may && number > 0);
  }

  ask() {
    const changes = this.changes();
    const { name } = this.model;
    const words = (field, is) => `${shown(field, is)}${field.percent ? ' %' : ''}`;
    const rows = this.rows.filter(({ field }) => field.path in changes).map(({ field }) => h('tr', h('th', { scope: 'row' }, field.path),
      h('td', words(field, ctl.at(this.settings, field.path))), h('td', h('b', words(field, changes[field.path])))));
    this.confirm.ask({
      title: `Change the settings of ${name}?`, yes: `Change ${many(rows.length, 'setting')}`, line: ctl.set(name, changes),
      body: [h('table', h('thead', h('tr', ['Setting', 'Now', 'New'].map((head) => h('th', { scope: 'col' }, head)))), h('tbody', rows)),
        h('p', 'Queries in progress are not affected.')],
      act: async () => {
        this.settings = await call('PATCH', `/admin/v1/settings/${encodeURIComponent(name)}`, ctl.patch(changes)).catch((error) => this.refused(error));
        this.fill();
      },
    });
  }
}
