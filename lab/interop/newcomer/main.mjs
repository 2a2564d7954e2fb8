// Follows pages as a newcomer does: types their commands, and checks their promises.
// Run `node main.mjs` with the variables that newcomer.sh sets.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Browser } from './browser.mjs';
import { missing, steps } from './document.mjs';
import { PROMISES } from './promises.mjs';
import { Terminal } from './terminal.mjs';

const { SCRATCH: folder, PARM_BINARY: binary, CLASSIFY: classify } = process.env;
/** The pages that are read together, in one terminal each: the newcomers' part of the README, then the two later pages. */
const JOURNEYS = [['README.md'], ['docs/quickstart.md', 'docs/bring-your-own-model.md']];
const END_OF_README = '\n## How it works';

/** A build takes ten minutes and is not tested here: cargo links the existing binary instead. */
const CARGO = `cargo() {
  case "$*" in
    "build --release") mkdir -p target/release && cp "${binary}" target/release/parm ;;
    "run --release -- "*) shift 3; "${binary}" "$@" ;;
    "run --release --example classify -- "*) shift 5; "${classify}" "$@" ;;
    *) echo "cargo $*: nothing is known of it here"; return 64 ;;
  esac
}`;
/** A server without an end keeps running, in its own terminal. */
const STAYS = /^(?:parm|cargo run --release --) (?:serve|worker)\b(?!.*&$)/s;
const SKIPPED = new Map([['cargo test --workspace', 'CI runs it'], ...(classify ? [] : [['cargo run --release --example classify -- README.md', 'the example was not built']])]);

async function until(holds, what) {
  for (let tries = 0; tries < 600; tries += 1) {
    if (await holds()) return;
    await new Promise((later) => setTimeout(later, 100));
  }
  throw new Error(`timed out waiting until ${what}`);
}

const answers = (url) => fetch(url).then(({ ok }) => ok, () => false);

async function read(name, reader) {
  const text = readFileSync(join(folder, name), 'utf8');
  const page = name === 'README.md' ? text.slice(0, text.indexOf(END_OF_README)) : text;
  for (const step of steps(page)) {
    const place = `${name}:${step.at}`;
    if (step.kind === 'see') {
      const promise = PROMISES[step.name];
      if (!promise) throw new Error(`${place}: promises.mjs has no ${step.name}`);
      reader.seen.add(step.name);
      console.log(`${place}  seen: ${await promise(reader)}`);
    } else await typed(step, place, reader);
  }
}

async function typed({ command, prints }, place, reader) {
  const shown = command.split('\n')[0];
  reader.skipped = SKIPPED.get(command);
  if (reader.skipped) {
    console.log(`${place}  skipped, ${reader.skipped}: ${shown}`);
    return;
  }
  reader.typedAt = Date.now();
  if (STAYS.test(command)) {
    await reader.terminal.leave(command);
    await until(() => answers('http://127.0.0.1:8000/v2/health/ready'), `${command} serves`);
    reader.left = true;
    console.log(`${place}  stays: ${shown}`);
    return;
  }
  const { printed, status } = await reader.terminal.run(command);
  const seconds = ((Date.now() - reader.typedAt) / 1000).toFixed(1);
  reader.printed = printed;
  const lacks = missing(prints, printed);
  if (status || lacks.length) throw new Error(`${place}: ${command}\nended with ${status}${lacks.length ? `, without\n${lacks.join('\n')}` : ''}\nand printed\n${printed}`);
  console.log(`${place}  ${seconds} s${prints.length ? `, ${prints.length} lines as promised` : ''}: ${shown}`);
}

async function busy() {
  const ports = [8000, 8003, 9001, 9002, 9003, 9004];
  const taken = await Promise.all(ports.map((port) => fetch(`http://127.0.0.1:${port}/`).then(() => port, () => null)));
  return taken.filter(Boolean);
}

const taken = await busy();
if (taken.length) throw new Error(`the pages use ports that are already in use: ${taken.join(', ')}`);
const browser = await Browser.start();
const seen = new Set();
try {
  for (const pages of JOURNEYS) {
    const reader = { browser, seen, folder, terminal: new Terminal(folder, {}, CARGO) };
    try {
      for (const name of pages) await read(name, reader);
      if (reader.left) await reader.terminal.interrupt();
    } finally {
      await reader.terminal.close();
    }
  }
} finally {
  await browser.close();
}
const idle = Object.keys(PROMISES).filter((name) => !seen.has(name));
if (idle.length) throw new Error(`no page promises ${idle.join(', ')} any more`);
console.log(`newcomer: ${JOURNEYS.flat().join(', ')} hold`);
