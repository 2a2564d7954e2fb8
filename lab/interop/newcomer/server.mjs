// Processes of the SRE's day: `parm` servers on free ports, with their logs, and its commands.

import { execFile, spawn } from 'node:child_process';
import { existsSync, openSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';

const { PARM_BINARY: binary, SCRATCH: folder } = process.env;
const PATIENCE = 120_000;
const running = new Set();

/** Waits until a function returns something, and returns it. */
export async function until(what, holds, patience = PATIENCE) {
  for (const end = Date.now() + patience; Date.now() < end;) {
    const found = await holds();
    if (found) return found;
    await new Promise((later) => { setTimeout(later, 100); });
  }
  throw new Error(`timed out waiting until ${what}`);
}

/** Runs a command of parm; returns what it printed and its status. */
export const parm = (...words) => new Promise((done) => {
  execFile(binary, words, { cwd: folder, timeout: PATIENCE }, (error, stdout, stderr) => done({ printed: stdout + stderr, status: error?.code ?? 0 }));
});

/** Starts a command of parm that runs until `end`. */
export function keepRunning(...words) {
  const child = spawn(binary, words, { cwd: folder, stdio: 'ignore' });
  running.add(child);
  child.on('exit', () => running.delete(child));
}

export class Server {
  /** Starts `parm WORDS` and waits until it listens. */
  static async start(name, ...words) {
    const one = new Server();
    Object.assign(one, { name, path: join(folder, `${name}.log`) });
    const [ready, log] = [join(folder, `${name}.json`), openSync(one.path, 'w')];
    rmSync(ready, { force: true });
    const free = ['--http', '--grpc', '--metrics'].flatMap((flag) => [flag, '127.0.0.1:0']);
    one.process = spawn(binary, [...words, ...free, '--ready-file', ready], { cwd: folder, stdio: ['ignore', log, log] });
    one.process.on('exit', () => { one.ended = true; running.delete(one); });
    running.add(one);
    await until(`${name} listens`, () => {
      if (one.ended) throw new Error(`${name} ended:\n${one.log()}`);
      return existsSync(ready);
    });
    Object.assign(one, JSON.parse(readFileSync(ready, 'utf8')));
    return one;
  }

  log() { return readFileSync(this.path, 'utf8'); }

  /** Lines before this moment do not count any more. */
  mark() { this.from = this.log().length; }

  /** Waits for a line of the log, since the mark, that has all these texts. */
  line(...texts) {
    const found = () => this.log().slice(this.from).split('\n').find((line) => texts.every((text) => line.includes(text)));
    return until(`the log of ${this.name} has ${texts.join(', ')}:\n${this.log()}`, found);
  }

  kill(signal) { this.process.kill(signal); }

  /** Sets the faults of a worker. */
  async faults(plan) {
    const answer = await fetch(`http://${this.metrics}/faults`, { method: 'POST', body: JSON.stringify(plan) });
    if (!answer.ok) throw new Error(await answer.text());
  }

  /** Returns the sum of a metric over the series whose labels have this text. */
  async metric(name, label = '') {
    const page = await (await fetch(`http://${this.metrics}/metrics`)).text();
    const rows = page.split('\n').filter((line) => line.startsWith(name) && /^[{ ]/.test(line.slice(name.length)) && line.includes(label));
    return rows.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
  }
}

/** Ends all that still run. */
export function end() { for (const one of running) one.kill('SIGKILL'); }
