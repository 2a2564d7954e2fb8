// An SRE's day with six workers: one slow, one killed, one drained, all killed, SIGHUP, keys and TLS. Log, `parm doctor`, metrics and page must
// say what happened. Run it with the variables that newcomer.sh sets.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Browser } from './browser.mjs';
import { Server, end, keepRunning, parm, until } from './server.mjs';

const { SCRATCH: folder } = process.env;
const models = ['--models', 'tests/models', '--instances', '1'];
const usual = { delay_ms: { kind: 'constant', value: 20 } };
const file = (name, text) => { writeFileSync(join(folder, name), text); return name; };
const worker = async (name, ...words) => {
  const one = await Server.start(name, 'worker', ...models, '--faults', ...words);
  await one.faults(usual);
  return one;
};
const says = (text, ...patterns) => patterns.forEach((pattern) => assert.match(text, pattern));

/** Waits until `parm doctor` prints a line, and returns all that it prints. */
const checked = (url, pattern, ...words) => until(`parm doctor prints ${pattern}`, async () => {
  const { printed } = await parm('doctor', url, ...words);
  return pattern.test(printed) && printed;
});

async function outages(browser) {
  const workers = await Promise.all([1, 2, 3, 4, 5, 6].map((number) => worker(`worker-${number}`)));
  const urls = workers.map(({ http }) => `http://${http}`);
  const config = file('sre.toml', '');
  const frontend = await Server.start('frontend', 'serve', '--config', config, '--admin', '127.0.0.1:0', ...urls.flatMap((url) => ['--worker', url]));
  const url = `http://${frontend.admin}`;
  const ctl = (...words) => parm('ctl', ...words, '--url', url);
  await until('six are ready', async () => (await frontend.metric('parm_instances', 'state="ready"')) === 6);
  keepRunning('load', `http://${frontend.http}`, '--model', 'affine', '--rate', '60', '--seconds', '240', '--quiet');
  const page = await browser.open(`${url}/`);
  await page.waitForSelector('#state[data-is="live"]');
  const row = (number) => `#instances tr[data-key="${number}"] .badge`;
  await checked(url, /ok +instances: 6 of 6/);

  frontend.mark();
  await workers[1].faults({ delay_ms: { kind: 'constant', value: 150 } });
  await frontend.line('instance is slow', urls[1]);
  await until('the metric has it', async () => (await frontend.metric('parm_instance_slow', urls[1])) > 2);
  says(await checked(url, /instance 2 .*(slow|ejected)/), /instance 2/);
  await browser.says(row(2), /slow|ejected/);
  await workers[1].faults(usual);
  await until('the metric has its return', async () => (await frontend.metric('parm_instance_slow', urls[1])) < 1.5);
  console.log('slow: log, doctor, metric and page name instance 2, and the metric its return');

  frontend.mark();
  workers[2].kill('SIGKILL');
  await frontend.line('instance lost', urls[2]);
  says(await checked(url, /FAIL instance 3 .* is not connected/), /parm ctl remove 3/);
  assert.equal(await frontend.metric('parm_instances', 'state="connecting"'), 1);
  await browser.says(row(3), /connecting/);
  console.log('killed: log, doctor, metric and page name instance 3');

  says((await ctl('drain', '4')).printed, /instance 4 received the order/);
  await frontend.line('received an order', urls[3]);
  await checked(url, /note +instance 4 .* is draining/);
  await browser.says(row(4), /drain/);
  await ctl('return', '4');
  await checked(url, /instances: 5 of 6/);
  workers[4].kill('SIGTERM');
  await frontend.line('drained instance ended', urls[4]);
  const lines = frontend.log().split('\n').filter((line) => line.includes(urls[4]));
  const drain = lines.slice(lines.findIndex((line) => line.includes('is draining')));
  assert.ok(!drain.some((line) => line.includes('WARN')), `a drain is no warning:\n${drain.join('\n')}`);
  console.log('drained: by order and by SIGTERM, named, without a warning');

  file(config, '[frontend.dispatch]\nqueue_limit = 77\n[server]\nmax_body_bytes = 4096\n');
  frontend.kill('SIGHUP');
  says(await frontend.line('these changes need a restart'), /server\.max_body_bytes/);
  says((await ctl('settings')).printed, /"queue_limit": 77/);
  console.log('SIGHUP: what changes does, what cannot is named');

  workers.forEach((one) => one.kill('SIGKILL'));
  says(await frontend.line("no instance serves 'affine': every request fails"), /ERROR/);
  await checked(url, /FAIL model affine: .*no/);
  await browser.says('#sentence', /Outage: no instance serves affine\. Every request fails\./);
  assert.equal(await frontend.metric('parm_instances', 'state="ready"'), 0);
  const body = JSON.stringify({ inputs: [{ name: 'x', shape: [1, 4], datatype: 'FP32', data: [1, 2, 3, 4] }] });
  const refused = await fetch(`http://${frontend.http}/v2/models/affine/infer`, { method: 'POST', body });
  assert.equal(refused.status, 503);
  assert.ok(refused.headers.get('retry-after'), 'a client knows when to try again');
  const spare = await worker('worker-7');
  says((await ctl('add', `http://${spare.http}`)).printed, /added instance/);
  await frontend.line("'affine' is served again");
  const address = urls[0].slice('http://'.length);
  says((await ctl('remove', address)).printed, /removed/);
  says((await ctl('events')).printed, /no instance serves affine/, /is served again/);
  assert.equal(frontend.log().split('\n').filter((line) => line.includes('ERROR')).length, 1, 'one ERROR for one outage');
  console.log('outage: one ERROR, doctor, page, 503 with Retry-After, and its end');
  browser.well(url);
  frontend.kill('SIGTERM');
  await until('it ends in order', () => frontend.ended);
}

async function keysAndTls() {
  const made = await parm('keys', 'new', 'ops', '--role', 'read', '--file', 'keys.toml');
  const key = made.printed.match(/[A-Za-z0-9_-]{30,}/)[0];
  const openssl = (...words) => execFileSync('openssl', words, { cwd: folder, stdio: 'ignore' });
  openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-keyout', 'own.key', '-out', 'own.crt', '-subj', '/CN=parm', '-addext', 'basicConstraints=critical,CA:FALSE', '-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost');
  const set = ['server.keys_file=keys.toml', 'tls.mode=require', 'tls.certificate=own.crt', 'tls.key=own.key'].flatMap((one) => ['--set', one]);
  const server = await Server.start('secured', 'serve', ...models, '--admin', '127.0.0.1:0', ...set);
  const [plain, url] = [`http://${server.admin}`, `https://${server.admin}`];
  const fails = async (pattern, ...words) => {
    const { printed, status } = await parm('doctor', ...words);
    assert.notEqual(status, 0, printed);
    says(printed, pattern);
    return printed;
  };
  await fails(/TLS/, plain, '--key', key);
  await fails(/certificate|authorit/, url, '--key', key);
  says(await fails(/401/, url, '--ca', 'own.crt'), /PARM_KEY or --key/);
  await fails(/401/, url, '--ca', 'own.crt', '--key', 'wrong');
  says(await checked(url, /ok +admin API/, '--ca', 'own.crt', '--key', key), /1 of 1 are healthy/);
  assert.ok(!server.log().includes(key), 'the log has no key');
  assert.ok(!readFileSync(join(folder, 'keys.toml'), 'utf8').includes(key), 'the file has a digest only');
  console.log('keys and TLS: doctor names the missing authority, the missing and the wrong key');
}

const browser = await Browser.start();
try {
  if (!process.env.ONLY_TLS) await outages(browser);
  await keysAndTls();
} finally {
  end();
  await browser.close();
}
console.log('SRE: log, doctor, metrics and page say what happened');
