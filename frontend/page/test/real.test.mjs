// Tests of the page over real frontends and workers, under a small load. `PARM` is the binary;
// `SCREENSHOTS` is an optional folder for pictures.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const { chromium } = createRequire(`${process.env.PAGE_TOOLS}/`)('playwright-core');
const ROOT = new URL('../../..', import.meta.url);
const PATIENCE = 120_000;
const folder = mkdtempSync(join(tmpdir(), 'parm-page-'));
const children = [];
let browser;
let serial = 0;

before(async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-gpu'] });
});
after(async () => {
  await browser?.close();
  for (const { child } of children) child.kill('SIGKILL');
  rmSync(folder, { recursive: true });
});

/** A ready process of the binary: `{ child, log, http, admin, ... }`. */
async function parm(...words) {
  const file = join(folder, `ready-${serial += 1}.json`);
  const ports = ['--http', '127.0.0.1:0', '--grpc', '127.0.0.1:0', '--metrics', '127.0.0.1:0', '--ready-file', file];
  const child = spawn(process.env.PARM, [...words, ...ports], { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] });
  const one = { child, log: '' };
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => { one.log += text; });
  children.push(one);
  await until(() => {
    assert.equal(child.exitCode, null, one.log);
    try { return Object.assign(one, JSON.parse(readFileSync(file, 'utf8'))); } catch { return false; }
  });
  return one;
}

const worker = () => parm('worker', '--models', 'tests/models', '--instances', '1');
const frontend = (workers, ...words) => parm('serve', ...workers.flatMap(({ http }) => ['--worker', `http://${http}`]), '--admin', '127.0.0.1:0', ...words);

async function until(holds) {
  for (let tries = 0; tries < 3000; tries += 1) {
    if (await holds()) return;
    await new Promise((later) => setTimeout(later, 20));
  }
  assert.fail(`never: ${holds}`);
}

/** Sends queries, some at a time, until it is stopped. */
function load({ http }) {
  const run = { on: true, answered: 0 };
  const body = JSON.stringify({ inputs: [{ name: 'x', shape: [1, 4], datatype: 'FP32', data: [1, 2, 3, 4] }], parameters: { timeout: 2_000_000 } });
  run.done = Promise.all(Array.from({ length: 3 }, async () => {
    while (run.on) {
      const answer = await fetch(`http://${http}/v2/models/affine/infer`, { method: 'POST', body }).catch(() => null);
      await answer?.arrayBuffer();
      run.answered += answer?.ok ? 1 : 0;
      await new Promise((later) => setTimeout(later, 20));
    }
  }));
  run.stop = () => { run.on = false; return run.done; };
  return run;
}

async function open({ admin }, { width = 1280 } = {}) {
  const page = await (await browser.newContext({ viewport: { width, height: 900 }, reducedMotion: 'reduce' })).newPage();
  page.setDefaultTimeout(PATIENCE);
  page.requests = [];
  page.faults = [];
  page.on('request', (sent) => page.requests.push(sent.url()));
  page.on('pageerror', (error) => page.faults.push(error.message));
  page.on('console', (message) => { if (/Content Security Policy|Refused to/.test(message.text())) page.faults.push(message.text()); });
  await page.goto(`http://${admin}/`);
  return page;
}

/** Status of a call with headers that a browser would not allow. */
const status = ({ admin }, path, headers, method = 'GET') => new Promise((told, failed) => {
  const [host, port] = admin.split(':');
  request({ host, port, path, method, headers }, (answer) => { answer.resume(); told(answer.statusCode); }).on('error', failed).end();
});

const row = (number) => `#instances tr[data-key="${number}"]`;

test('page_shows_real_frontend_and_applies_changes', async () => {
  const workers = [await worker(), await worker(), await worker()];
  const server = await frontend(workers);
  await until(async () => (await fetch(`http://${server.http}/v2/models/affine/ready`)).ok);
  const queries = load(server);
  const page = await open(server);
  await page.waitForSelector('#state[data-is="live"]');
  await page.waitForFunction(() => /p99\.9 is/.test(document.querySelector('#sentence')?.textContent));

  const figures = () => page.textContent('#tiles');
  const before = await figures();
  await until(async () => (await figures()) !== before);
  await page.waitForFunction(() => document.querySelectorAll('#instances tbody tr').length === 3);

  const own = `http://${server.admin}/`;
  assert.deepEqual(page.requests.filter((url) => !url.startsWith(own)), [], 'nothing is asked of another host');
  for (const [width, name] of [[1280, 'wide'], [390, 'narrow']]) {
    await page.setViewportSize({ width, height: 900 });
    const beyond = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(beyond <= 0, `${width} px: ${beyond} beyond the screen`);
    if (process.env.SCREENSHOTS) await page.screenshot({ path: join(process.env.SCREENSHOTS, `page-${name}.png`), fullPage: true });
  }
  await page.setViewportSize({ width: 1280, height: 900 });

  // A setting: shown before it is sent, then in effect and logged.
  await page.fill('#set-queue-limit', '77');
  assert.match(await page.textContent('#set-queue-limit-line'), /^parm ctl set affine queue_limit=77/);
  await page.click('#controls .main');
  await page.click('dialog[open] .main');
  await page.waitForSelector('dialog[open]', { state: 'detached' });
  const settings = await (await fetch(`${own}admin/v1/settings/affine`)).json();
  assert.equal(settings.queue_limit, 77);
  await page.waitForFunction(() => /queue_limit 1024 to 77/.test(document.querySelector('#events')?.textContent));
  await until(() => /dispatch settings changed/.test(server.log) && /queue_limit 1024 to 77/.test(server.log));

  // A stopped worker is shown as such. The frames in between measure the time: they are a second apart.
  const frames = () => page.evaluate(async () => {
    const answer = await fetch('/admin/v1/stream');
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let [text, ages] = ['', []];
    while (ages.length < 4) {
      const { value } = await reader.read();
      text += value;
      const lines = text.split('\n');
      text = lines.pop();
      for (const line of lines) { const { frame } = JSON.parse(line); if (frame) ages.push(Math.max(...frame.instances.map((row) => row[10] ?? 0), ...frame.instances.map((row) => (row[1] === 1 ? 0 : 9999)))); }
    }
    await reader.cancel();
    return ages;
  });
  workers[1].child.kill('SIGSTOP');
  const ages = await frames();
  assert.ok(ages.slice(0, 4).some((age) => age >= 1000), `within three frames somebody is silent or out: ${ages}`);
  await page.waitForFunction((row) => /silent|ejected|connecting/.test(document.querySelector(row)?.textContent), row(2));
  if (process.env.SCREENSHOTS) await page.screenshot({ path: join(process.env.SCREENSHOTS, 'page-stopped.png'), fullPage: true });
  workers[1].child.kill('SIGCONT');
  await page.waitForFunction((row) => /\bready\b/.test(document.querySelector(`${row} .badge`)?.textContent), row(2));

  assert.deepEqual(page.faults, []);
  await queries.stop();
  assert.ok(queries.answered > 20, `${queries.answered} answered`);
});

test('other_sites_and_host_names_are_rejected', async () => {
  const server = await frontend([await worker()]);
  const foreign = { host: server.admin, origin: 'http://evil.example' };
  for (const path of ['/', '/page/main.js', '/admin/v1/stream', '/admin/v1/settings']) {
    assert.equal(await status(server, path, { host: 'evil.example' }), 403, path);
    assert.equal(await status(server, path, foreign), 403, path);
  }
  assert.equal(await status(server, '/admin/v1/instances/1/eject', foreign, 'POST'), 403);
  assert.equal(await status(server, '/', { host: server.admin }), 200);
});

test('real_frontend_requires_its_key', async () => {
  const server = await frontend([await worker()], '--set', 'frontend.admin.token=sesame');
  const page = await open(server);
  await page.waitForSelector('dialog[open]');
  await page.fill('#key', 'wrong');
  await page.click('dialog[open] button.main');
  await page.waitForFunction(() => /not accepted/.test(document.querySelector('#key-why')?.textContent));
  await page.fill('#key', 'sesame');
  await page.click('dialog[open] button.main');
  await page.waitForSelector('#state[data-is="live"]');
  assert.ok(page.requests.every((url) => !url.includes('sesame')));
});
