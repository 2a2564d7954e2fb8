// Confirmation of changes: shows the effect and the equivalent command before anything is sent.

import { h, say } from './dom.js';

export class Confirm {
  constructor() {
    this.title = h('h2', { id: 'confirm-title' });
    this.body = h('div', { id: 'confirm-body' });
    this.line = h('code.line');
    this.problem = h('p.problem', { role: 'alert' });
    this.yes = h('button.main', { onclick: () => this.go() });
    this.no = h('button', { onclick: () => this.dialog.close() }, 'Leave as it is');
    this.dialog = h('dialog', { 'aria-labelledby': 'confirm-title', 'aria-describedby': 'confirm-body' },
      this.title, this.body, h('p.soft', 'The same in a terminal:'), this.line, this.problem,
      h('div.buttons', this.no, this.yes));
    document.body.append(this.dialog);
  }

  /** `{ title, body: nodes, line, yes, act }`: `act` is awaited; its errors are shown. */
  ask({ title, body, line, yes, act }) {
    say(this.title, title);
    this.body.replaceChildren(...body);
    say(this.line, line);
    say(this.problem, '');
    say(this.yes, yes);
    this.yes.disabled = false;
    this.act = act;
    this.dialog.showModal();
    // Focus the harmless button, so that Enter alone changes nothing.
    this.no.focus();
  }

  async go() {
    this.yes.disabled = true;
    try {
      await this.act();
      this.dialog.close();
    } catch (error) {
      say(this.problem, error.message);
      this.yes.disabled = false;
    }
  }
}
