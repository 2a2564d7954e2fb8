// The key, kept in this tab only: not in a cookie, which other pages could use, nor in storage that outlives the tab.

import { h, say } from './dom.js';

const PLACE = 'parm-key';

export function key() { return sessionStorage.getItem(PLACE); }

export function forget() { sessionStorage.removeItem(PLACE); }

/** A call with the key. Error responses become errors with the server's message and `status`. */
export async function call(method, path, body) {
  const headers = { ...(key() ? { authorization: `Bearer ${key()}` } : {}), ...(body ? { 'content-type': 'application/json' } : {}) };
  const response = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: 'no-store' });
  const said = await response.json().catch(() => ({}));
  if (response.ok) return said;
  const error = new Error(said.error ?? `the frontend returned status ${response.status}`);
  error.status = response.status;
  throw error;
}

/** Asks for the key; `then` is called once there is one. */
export class KeyDialog {
  constructor(then) {
    this.input = h('input', { type: 'password', id: 'key', autocomplete: 'off', spellcheck: 'false', required: true });
    this.why = h('p.problem', { id: 'key-why' });
    const form = h('form', { method: 'dialog' },
      h('h2', { id: 'key-title' }, 'Key'),
      h('p', 'This page needs a key with the role ', h('code', 'read'), ' or ', h('code', 'control'), '.'),
      this.why,
      h('label', { for: 'key' }, 'Key'), this.input,
      h('p.soft', 'It stays in this tab and is sent to this frontend only.'),
      h('div.buttons', h('button.main', 'Show')));
    this.dialog = h('dialog', { 'aria-labelledby': 'key-title', 'aria-describedby': 'key-why' }, form);
    // A key must not be in a URL, so the form is never submitted.
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      sessionStorage.setItem(PLACE, this.input.value.trim());
      this.input.value = '';
      this.dialog.close();
      then();
    });
    document.body.append(this.dialog);
  }

  ask(why) {
    say(this.why, `${why[0].toUpperCase()}${why.slice(1)}.`);
    if (!this.dialog.open) this.dialog.showModal();
    this.input.focus();
  }
}
