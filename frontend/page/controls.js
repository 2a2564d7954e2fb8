// Settings that are worth changing while serving. Nothing is sent before it was shown, and beside each stands the line that does the same.

import { h, say, set, show } from './dom.js';
import * as ctl from './ctl.js';
import { call } from './key.js';
import { many } from './words.js';

/** `only`: policies under which it matters; `percent`: shown in hundredths, sent as a share. */
export const FIELDS = [
  { path: 'policy', label: 'Policy', about: 'What hides slow and dead instances', group: 'Policy' },
  { path: 'stand_in.bound', label: 'Bound', about: 'Most answers that may be approximate', group: 'Stand-ins', percent: true, min: 0, max: 100, step: 0.1, only: ['stand-in'] },
  { path: 'stand_in.grace.factor', label: 'Grace', about: 'Medians that an approximate answer is held back for', group: 'Stand-ins', min: 0, max: 100, step: 0.05, only: ['stand-in'] },
  { path: 'stand_in.late_budget.ratio', label: 'Budget', about: 'Work on late queries, of all jobs', group: 'Stand-ins', percent: true, min: 0, max: 100, step: 1, only: ['stand-in'] },
  { path: 'stand_in.agreement.floor', label: 'Agreement', about: 'Below this none are given', group: 'Stand-ins', percent: true, min: 0, max: 100, step: 1, only: ['stand-in'] },
  { path: 'coding.k', label: 'k', about: 'Queries per coding group', group: 'Coding', min: 1, max: 64, step: 1, whole: true, only: ['parm', 'parm+'] },
  { path: 'coding.r', label: 'r', about: 'Parities per group', group: 'Coding', min: 1, max: 16, step: 1, whole: true, only: ['parm', 'parm+'] },
  { path: 'coding.grace.factor', label: 'Grace', about: 'Medians that a reconstruction is held back for', group: 'Coding', min: 0, max: 100, step: 0.05, only: ['parm+', 'approximate-backup'] },
  { path: 'coding.min_confidence', label: 'Confidence', about: 'Below this no reconstruction is given', group: 'Coding', percent: true, min: 0, max: 100, step: 1, only: ['parm', 'parm+'] },
  { path: 'hedge.budget.ratio', label: 'Budget', about: 'Jobs that may be duplicated; also how late is late', group: 'Hedges', percent: true, min: 0, max: 100, step: 1, only: ['hedge', 'parm+', 'stand-in'] },
  { path: 'hedge.budget.burst', label: 'Burst', about: 'Duplicates that may come together', group: 'Hedges', min: 0, max: 100000, step: 1, whole: true, only: ['hedge', 'parm+', 'stand-in'] },
  { path: 'replicate.copies', label: 'Copies', about: 'Instances that each batch runs on', group: 'Copies', min: 1, max: 16, step: 1, whole: true, only: ['replicate'] },
  { path: 'retry.ratio', label: 'Retries', about: 'Failed jobs that may be tried again, of all jobs', group: 'Limits', percent: true, min: 0, max: 100, step: 1 },
  { path: 'queue_limit', label: 'Queue', about: 'Queries that may wait', group: 'Limits', min: 1, max: 1000000, step: 1, whole: true },
  { path: 'ejection.slow_factor', label: 'Slow', about: 'Medians beyond which an answer counts as slow', group: 'Limits', min: 1, max: 1000, step: 0.1 },
];

/** What a field shows of a value, and the value of what it shows; `null` where that is none. */
export const shown = (field, value) => (field.percent ? String(Math.round(value * 1e6) / 1e4) : String(value));

export function value(field, text) {
  if (field.path === 'policy') return text;
  const number = Number(text);
  if (text.trim() === '' || !Number.isFinite(number) || number < field.min || number > field.max) return null;
  if (field.whole && !Number.isInteger(number)) return null;
  return field.percent ? Math.round(number * 1e6) / 1e8 : number;
}

export class Controls {
  constructor(root, confirm, refused) {
    Object.assign(this, { confirm, refused, inputs: new Map(), settings: null });
    this.lead = h('p', { class: 'lead' });
    this.groups = h('div', { class: 'fields' });
    this.review = h('button', { class: 'main' }, 'Review');
    this.back = h('button', { type: 'button', onclick: () => this.fill() }, 'Undo');
    this.form = h('form', { onsubmit: (event) => { event.preventDefault(); this.ask(); }, oninput: () => this.changed() }, this.groups, h('div', { class: 'buttons' }, this.back, this.review));
    this.form.noValidate = true;
    root.append(this.lead, this.form);
    show(this.form, false);
  }

  /** Follows a model: its settings are fetched when they are others. */
  async draw(model, policies, may, stale = false) {
    const of = `${model.name} ${model.revision} ${may}`;
    if (this.of === of && !stale) return this.settings;
    this.of = of;
    const edited = this.model?.name === model.name ? this.changes() : {};
    Object.assign(this, { model, may });
    try {
      this.settings = await call('GET', `/admin/v1/settings/${encodeURIComponent(model.name)}`);
    } catch (error) {
      this.of = null;
      say(this.lead, `The settings are not known: ${error.message}.`);
      return null;
    }
    if (this.of !== of) return this.settings;
    if (!this.inputs.size) this.build(policies);
    say(this.lead, may ? `Settings of ${model.name}, in force at once and until the next start; the configuration file stays as it is.`
      : `Settings of ${model.name}. This key may read them and not change them.`);
    set(this.lead, 'data-tone', may ? null : 'warn');
    show(this.form, true);
    this.fill(edited);
    return this.settings;
  }

  build(policies) {
    const names = [...new Set(FIELDS.map(({ group }) => group))];
    for (const name of names) {
      const set = h('fieldset', { 'data-group': name }, h('legend', {}, name));
      for (const field of FIELDS.filter(({ group }) => group === name)) {
        const id = `set-${field.path.replaceAll('.', '-')}`;
        const input = field.path === 'policy' ? h('select', { id }, policies.map((policy) => h('option', {}, policy)))
          : h('input', { id, type: 'number', min: field.min, max: field.max, step: field.step, inputmode: 'decimal' });
        const line = h('code', { class: 'line' });
        const row = h('div', { class: 'field' }, h('label', { for: id }, field.label, h('small', {}, field.about)),
          h('span', { class: 'entry' }, input, field.percent ? h('span', { class: 'unit' }, '%') : null), line);
        input.setAttribute('aria-describedby', `${id}-line`);
        line.id = `${id}-line`;
        this.inputs.set(field, { input, line, row });
        set.append(row);
      }
      this.groups.append(set);
    }
  }

  /** Shows what is in force, and what was being changed. */
  fill(edited = {}) {
    for (const [field, { input }] of this.inputs) {
      const now = ctl.at(this.settings, field.path);
      input.value = shown(field, edited[field.path] ?? now);
      input.disabled = !this.may;
    }
    this.changed();
  }

  /** By path, what differs from what is in force; `null` for what is no value. */
  changes() {
    const out = {};
    for (const [field, { input, row }] of this.inputs) {
      const is = value(field, input.value);
      if (!row.hidden && is !== ctl.at(this.settings, field.path)) out[field.path] = is;
    }
    return out;
  }

  changed() {
    const policy = [...this.inputs].find(([field]) => field.path === 'policy')[1].input.value;
    for (const [field, { row }] of this.inputs) show(row, !field.only || field.only.includes(policy));
    for (const group of this.groups.children) show(group, [...group.querySelectorAll('.field')].some((row) => !row.hidden));
    const changes = this.changes();
    for (const [field, { input, line, row }] of this.inputs) {
      const other = field.path in changes;
      const is = value(field, input.value);
      set(row, 'data-changed', other ? 'yes' : null);
      set(input, 'aria-invalid', is === null ? 'true' : null);
      say(line, is === null ? `between ${field.min} and ${field.max}` : ctl.set(this.model.name, { [field.path]: is }));
    }
    const number = Object.keys(changes).length;
    const bad = Object.values(changes).includes(null);
    this.review.disabled = !number || bad;
    say(this.review, number ? `Review ${many(number, 'change')}…` : 'Nothing changed');
    show(this.review, this.may);
    show(this.back, this.may && number > 0);
  }

  ask() {
    const changes = this.changes();
    const rows = [...this.inputs.keys()].filter(({ path }) => path in changes).map((field) => h('tr', {}, h('th', { scope: 'row' }, field.path),
      h('td', {}, shown(field, ctl.at(this.settings, field.path)), field.percent ? ' %' : ''), h('td', {}, h('span', { 'aria-hidden': 'true' }, '→ '), h('b', {}, shown(field, changes[field.path]), field.percent ? ' %' : ''))));
    const { name } = this.model;
    this.confirm.ask({
      title: `Change the settings of ${name}?`, yes: `Change ${many(rows.length, 'setting')}`, line: ctl.set(name, changes),
      body: [h('table', {}, h('thead', {}, h('tr', {}, ['Setting', 'In force', 'From now on'].map((head) => h('th', { scope: 'col' }, head)))), h('tbody', {}, rows)),
        h('p', {}, 'Queries under way are not disturbed.')],
      act: async () => {
        try {
          this.settings = await call('PATCH', `/admin/v1/settings/${encodeURIComponent(name)}`, ctl.patch(changes));
          this.fill();
        } catch (error) {
          if (error.status === 403) this.refused();
          throw error;
        }
      },
    });
  }
}
