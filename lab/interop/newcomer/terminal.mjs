// A reader's shell: bash with job control, one for all blocks of a page, so that variables, jobs and the folder persist.

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';

/** The timeout of a command: a virtual environment can take several. */
const PATIENCE = 600_000;

export class Terminal {
  constructor(folder, env, before) {
    // A separate process group, which is ended as a whole.
    this.bash = spawn('bash', ['--noprofile', '--norc'], { cwd: folder, env: { ...process.env, ...env }, detached: true, stdio: ['pipe', 'pipe', 'pipe'] });
    this.text = '';
    this.bash.stdout.setEncoding('utf8').on('data', (text) => { this.text += text; this.wake?.(); });
    this.bash.on('exit', () => { this.ended = true; this.wake?.(); });
    this.bash.stdin.write(`set -m\nexec 2>&1\n${before}\n`);
  }

  /** Types a command; returns its output and status when it ends. */
  async run(command, patience = PATIENCE) {
    const mark = `--${randomBytes(8).toString('hex')}--`;
    this.text = '';
    // A new line first: the output may not end with one.
    this.bash.stdin.write(`${command}\nprintf '\\n%s%s\\n' "${mark}" "$?"\n`);
    const until = Date.now() + patience;
    for (;;) {
      const found = new RegExp(`\\n${mark}(\\d+)\\n`).exec(this.text);
      if (found) return { printed: this.text.slice(0, found.index), status: Number(found[1]) };
      if (this.ended) throw new Error(`the shell ended in ${command}:\n${this.text}`);
      if (Date.now() > until) throw new Error(`after ${patience / 1000} s it has not ended: ${command}\n${this.text}`);
      await new Promise((wake) => { this.wake = wake; setTimeout(wake, 200); });
    }
  }

  /** Starts a command that keeps running, in its own terminal. */
  async leave(command) { await this.run(`{ ${command}\n} </dev/null >>terminal.log 2>&1 & last_left=$!`); }

  /** Presses Ctrl-C in that terminal. */
  async interrupt() { await this.run('kill -INT "-$last_left" && wait "$last_left"'); }

  /** Ends everything that was started in it. */
  async close() {
    if (!this.ended) await this.run('kill -CONT $(jobs -p) 2>/dev/null; kill -KILL $(jobs -p) 2>/dev/null; true').catch(() => {});
    try { process.kill(-this.bash.pid, 'SIGKILL'); } catch { /* it has ended */ }
  }
}
