// Tests of the page in a real browser, over a simulated frontend (mock.mjs). Frames come on request, so that nothing depends
// on the machine's load. `PAGE_TOOLS` is the folder with playwright-core and axe-core, `CHROMIUM` the browser.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { start } from './mock.mjs';

const tools = createRequire(`${process.env.PAGE_TOOLS}/`);
const { chromium } = tools('playwright-core');
const axe = tools.resolve('axe-core/axe.min.js');
const PATIENCE = 120_000;
const open = [];
let browser;

before(async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-gpu', '--js-flags=--expose-gc'] });
});
after(async () => {
  await browser?.close();
  await Promise.all(open.map((mock) => mock.close()));
});

/** A page over a simulated frontend: `{ page, mock, next }`, where `next` adds one second. */
async function watch({ width = 1280, scheme = 'light', shown = true, ...options } = {}) {
  const mock = await start({ interval: 600_000, past: 30, ...options });
  open.push(mock);
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, reducedMotion: options.reducedMotion ?? 'reduce' });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.faults = [];
  page.requests = [];
  page.on('pageerror', (error) => page.faults.push(error.message));
  page.on('console', (message) => { if (/Content Security Policy|Refused to/.test(message.text())) page.faults.push(message.text()); });
  page.on('request', (request) => page.requests.push(request.url()));
  await page.goto(mock.url);
  const next = async (seconds = 1) => {
    for (let second = 0; second < seconds; second += 1) {
      await until(() => mock.watchers.size > 0);
      mock.tick();
    }
  };
  if (shown) {
    await next();
    await page.waitForSelector('#state[data-is="live"]');
  }
  return { page, mock, next, context };
}

async function until(holds) {
  for (let tries = 0; tries < 3000; tries += 1) {
    if (await holds()) return;
    await new Promise((later) => setTimeout(later, 20));
  }
  assert.fail(`never: ${holds}`);
}

const text = (page, selector) => page.textContent(selector);
const says = (page, selector, words) => page.waitForFunction(([selector, words]) => new RegExp(words).test(document.querySelector(selector)?.textContent), [selector, words]);
const row = (number) => `#instances tr[data-key="${number}"]`;
const changes = (mock) => mock.calls.filter(({ method }) => method !== 'GET').map(({ method, path, body }) => ({ method, path, body }));

/** Findings of axe, on the whole page or within a selector. */
async function violations(page, part) {
  // Evaluated rather than added: the page's policy allows only its own scripts.
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(readFileSync(axe, 'utf8'));
  const found = await page.evaluate((part) => window.axe.run(part ?? document, { resultTypes: ['violations'] }), part);
  return found.violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 140)).join(' | ')}`);
}

const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

test('page_loads_nothing_from_other_hosts', async () => {
  const { page, mock, next } = await watch();
  await says(page, '#sentence', 'p99.9 is');
  await page.selectOption('#model', { index: 1 });
  await next(2);
  await page.click('#queries tbody button');
  await page.waitForSelector('#queries .timeline');
  assert.deepEqual(page.requests.filter((url) => !url.startsWith(`${mock.url}/`)), []);
  assert.ok(page.requests.length > 10);
  const policy = (await page.request.get(mock.url)).headers()['content-security-policy'];
  assert.match(policy, /default-src 'self'/);
  assert.deepEqual(page.faults, []);
});

test('figures_move_with_every_frame', async () => {
  const { page, next } = await watch();
  const figures = () => page.$$eval('#tiles .beside, #tiles path, #latency path', (all) => all.map((each) => each.getAttribute('d') ?? each.textContent).join());
  const before = await figures();
  await next();
  await until(async () => (await figures()) !== before);
  assert.deepEqual(page.faults, []);
});

test('stopped_worker_is_shown_within_three_seconds', async () => {
  const { page, mock, next } = await watch();
  assert.equal(await text(page, `${row(7)} .badge`), 'ready');
  mock.cluster.stop(7);
  await next(1);
  await says(page, `${row(7)} .badge`, '^ready, silent$');
  await next(2);
  await says(page, `${row(7)} .badge`, '^ejected: silent$');
  assert.equal(await page.getAttribute('#instances tbody tr:first-child', 'data-key'), '7', 'trouble comes first');
  await says(page, '#notes', '1 instance ejected: 7');
  await says(page, '#events', 'instance 7 on gpu-node-2: silent: it holds a job');
  mock.cluster.go(7);
  await next(4);
  await says(page, `${row(7)} .badge`, '^ready');
});

test('slow_node_is_named_and_can_be_drained', async () => {
  const { page, mock } = await watch();
  await says(page, '#notes', 'Node gpu-node-3 is 3\\.\\d times slower than the others: cordon it');
  await page.click('#nodes tr[data-key="gpu-node-3"] button');
  assert.match(await text(page, 'dialog[open] code'), /^parm ctl drain 9 10 11 12 --url http:/);
  assert.deepEqual(changes(mock), [], 'nothing was confirmed');
  await page.click('dialog[open] .main');
  await until(() => changes(mock).length === 4);
  assert.deepEqual(changes(mock).map(({ path }) => path), [9, 10, 11, 12].map((number) => `/admin/v1/instances/${number}/drain`));
});

test('slow_node_is_noted_once', async () => {
  const { page, mock, next } = await watch();
  for (const one of mock.cluster.instances.filter(({ node }) => node === 'gpu-node-5')) Object.assign(one, { factor: 3.1, slow: [] });
  await next(30);
  await says(page, '#notes', 'Node gpu-node-5 is');
  await next(3);
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  assert.equal(await page.locator('#notes li').filter({ hasText: 'cordon it' }).count(), 2);
});

test('changed_setting_is_shown_before_it_is_sent', async () => {
  const { page, mock, next } = await watch();
  await page.waitForSelector('#set-stand-in-bound');
  assert.equal(await page.inputValue('#set-stand-in-bound'), '5');
  assert.equal(await page.isDisabled('#controls .main'), true);
  await page.fill('#set-stand-in-bound', '2');
  assert.match(await text(page, '#set-stand-in-bound-line'), /^parm ctl set resnet50 stand_in\.bound=0\.02/);
  await page.click('#controls .main');
  assert.match(await text(page, 'dialog[open]'), /stand_in\.bound.*5 %.*2 %/s);
  await page.keyboard.press('Escape');
  assert.deepEqual(changes(mock), [], 'escape changes nothing');
  await page.click('#controls .main');
  assert.match(await text(page, 'dialog[open] code'), /^parm ctl set resnet50 stand_in\.bound=0\.02/);
  await page.click('dialog[open] .main');
  await page.waitForSelector('dialog[open]', { state: 'detached' });
  assert.deepEqual(changes(mock), [{ method: 'PATCH', path: '/admin/v1/settings/resnet50', body: { stand_in: { bound: 0.02 } } }]);
  assert.equal(mock.cluster.models[0].settings.stand_in.bound, 0.02);
  await next();
  await says(page, '#events', 'stand_in.bound 0.05 to 0.02, by ops');
  await says(page, '#controls .main', 'Nothing changed');
});

test('rejected_setting_shows_why_and_invalid_one_is_not_sent', async () => {
  const { page } = await watch();
  await page.waitForSelector('#set-queue-limit');
  await page.fill('#set-queue-limit', '0');
  assert.equal(await page.getAttribute('#set-queue-limit', 'aria-invalid'), 'true');
  assert.equal(await page.isDisabled('#controls .main'), true);
  await page.fill('#set-queue-limit', '7');
  await page.route('**/admin/v1/settings/*', (route) => (route.request().method() === 'PATCH' ? route.fulfill({ status: 400, json: { error: 'invalid settings' } }) : route.continue()));
  await page.click('#controls .main');
  await page.click('dialog[open] .main');
  await says(page, 'dialog[open] .problem', 'invalid settings');
});

test('instance_is_ejected_and_returned', async () => {
  const { page, mock, next } = await watch();
  await page.click(`${row(3)} [data-order="eject"]`);
  assert.match(await text(page, 'dialog[open] code'), /^parm ctl eject 3/);
  await page.click('dialog[open] .main');
  await until(() => changes(mock).length === 1);
  await next();
  await says(page, `${row(3)} .badge`, 'ejected by order');
  await page.click(`${row(3)} [data-order="undrain"]`);
  assert.match(await text(page, 'dialog[open] code'), /^parm ctl return 3/);
  await page.click('dialog[open] .main');
  await until(() => changes(mock).length === 2);
  assert.deepEqual(changes(mock).map(({ path }) => path), ['/admin/v1/instances/3/eject', '/admin/v1/instances/3/undrain']);
});

test('key_is_sent_as_bearer_only', async () => {
  const { page, mock, next } = await watch({ key: 'secret-key', shown: false });
  await page.waitForSelector('dialog[open] #key');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'key');
  assert.equal(await page.isVisible('#instances'), false, 'nothing is shown before');
  await page.fill('#key', 'wrong');
  await page.keyboard.press('Enter');
  await says(page, 'dialog[open] .problem', 'The key was not accepted');
  await page.fill('#key', 'secret-key');
  await page.keyboard.press('Enter');
  await next();
  await says(page, '#sentence', 'p99.9 is');
  await page.waitForSelector('#forget:visible');
  const sent = mock.calls.filter(({ path, authorization }) => path.startsWith('/admin/') && authorization).map(({ authorization }) => authorization);
  assert.deepEqual([...new Set(sent)], ['Bearer wrong', 'Bearer secret-key']);
  assert.ok(page.requests.every((url) => !url.includes('secret-key')));
  assert.deepEqual(await page.evaluate(() => [localStorage.length, document.cookie]), [0, '']);
});

test('read_key_has_no_controls', async () => {
  const { page, mock } = await watch({ role: 'read' });
  await page.waitForSelector('#set-policy');
  assert.equal(await page.isDisabled('#set-policy'), true);
  assert.match(await text(page, '#controls .lead'), /may read the settings but not change them/);
  assert.equal(await page.locator('#instances [data-order]:visible, #nodes button:visible, #controls button:visible').count(), 0);
  mock.role = 'control';
  const other = await watch();
  other.mock.role = 'read';
  await other.page.click(`${row(3)} [data-order="drain"]`);
  await other.page.click('dialog[open] .main');
  await says(other.page, 'dialog[open] .problem', 'has the role read');
  await other.page.keyboard.press('Escape');
  await until(async () => (await other.page.locator('#instances [data-order]:visible').count()) === 0);
});

test('all_controls_work_by_keyboard', async () => {
  const { page, next } = await watch({ past: 300 });
  await page.waitForSelector('#set-policy');
  const seen = [];
  for (let step = 0; step < 250; step += 1) {
    await page.keyboard.press('Tab');
    const at = await page.evaluate(() => {
      const on = document.activeElement;
      if (on === document.body) return null;
      const { width, height } = on.getBoundingClientRect();
      const outline = getComputedStyle(on).outlineStyle;
      return { name: on.id || on.getAttribute('aria-label') || on.textContent.trim().slice(0, 30), part: on.closest('section, header')?.id ?? '', ring: outline !== 'none', size: width * height };
    });
    if (!at || (seen.length && at.name === seen[0].name)) break;
    seen.push(at);
  }
  assert.deepEqual(seen.filter(({ ring, size }) => !ring || size < 4).map(({ name }) => name), [], 'focus shows');
  const names = seen.map(({ name }) => name);
  for (const name of ['To the verdict', 'model', 'all answers', 'stand-in', 'Look at a moment', 'query', 'outcome', 'slowest', 'Look', 'find', 'State', 'Drain instance 9', 'Drain node gpu-node-3', 'Events', 'set-policy', 'set-stand-in-bound']) {
    assert.ok(names.includes(name), `${name} is not reached: ${names.join(', ')}`);
  }
  await page.focus('#instances th button >> text=p50');
  await page.keyboard.press('Enter');
  assert.equal(await page.getAttribute('#instances th[aria-sort]', 'aria-sort'), 'descending');
  await page.keyboard.press('Space');
  assert.equal(await page.getAttribute('#instances th[aria-sort]', 'aria-sort'), 'ascending');
  await page.focus('.plot input');
  const now = await text(page, '.readout');
  await page.keyboard.press('ArrowLeft');
  assert.notEqual(await text(page, '.readout'), now);
  await page.focus(`${row(3)} [data-order="drain"]`);
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Leave as it is');
  await next();
  await page.keyboard.press('Escape');
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Drain instance 3', 'focus comes back, though a frame came');
});

test('no_screen_scrolls_sideways', async () => {
  for (const scenario of ['cluster', 'many', 'empty', 'quiet']) {
    const { page, next, context } = await watch({ scenario });
    for (const width of [390, 768, 1280]) {
      await page.setViewportSize({ width, height: 900 });
      await next();
      await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
      assert.equal(await overflow(page), 0, `${scenario} at ${width}`);
    }
    assert.deepEqual(page.faults, [], scenario);
    await context.close();
  }
});

test('axe_finds_nothing_in_light_and_dark', async () => {
  for (const scheme of ['light', 'dark']) {
    const { page, mock, next } = await watch({ scheme });
    mock.cluster.stop(7);
    await next(3);
    await page.waitForSelector('#set-policy');
    await page.click('#queries tbody button');
    await page.click('#latency summary');
    await page.waitForSelector('#queries .timeline');
    assert.deepEqual(await violations(page), [], `stand-ins, ${scheme}`);
    await page.fill('#set-stand-in-bound', '2');
    await page.click('#controls .main');
    assert.deepEqual(await violations(page, 'dialog[open]'), [], `confirmation, ${scheme}`);
    await page.keyboard.press('Escape');
    await page.selectOption('#model', { index: 1 });
    await next();
    await page.waitForSelector('#groups .groups li');
    assert.deepEqual(await violations(page, '#groups'), [], `groups, ${scheme}`);
    mock.cut();
    await page.waitForSelector('#lost:visible');
    assert.deepEqual(await violations(page, '#lost'), [], `lost, ${scheme}`);
    for (const options of [{ key: 'k', shown: false }, { scenario: 'empty' }, { scenario: 'quiet', width: 390, role: 'read' }]) {
      const other = await watch({ scheme, ...options });
      if (options.key) await other.page.waitForSelector('dialog[open]');
      assert.deepEqual(await violations(other.page), [], `${JSON.stringify(options)}, ${scheme}`);
      await other.context.close();
    }
  }
});

test('memory_and_elements_stay_within_bounds', async () => {
  const { page, mock, next, context } = await watch({ scenario: 'cluster' });
  const session = await context.newCDPSession(page);
  const frame = mock.cluster.frame();
  let at = Date.now();
  const run = async (frames) => {
    for (let count = 0; count < frames; count += 1) {
      at += 1000;
      const event = { at, kind: 'kept', instance: 9, m: 0, text: `slow, number ${at}`, by: null };
      for (const watcher of mock.watchers) watcher.write(`${JSON.stringify({ events: [event] })}\n${JSON.stringify({ frame: { ...frame, at } })}\n`);
      if (count % 50 === 49) await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(drawn)));
    }
    await page.waitForFunction((wanted) => document.querySelector('#clock').textContent && wanted, at);
    await page.evaluate(() => new Promise((drawn) => setTimeout(() => requestAnimationFrame(drawn), 100)));
    await session.send('HeapProfiler.collectGarbage');
    const { usedSize } = await session.send('Runtime.getHeapUsage');
    return { heap: usedSize / 1e6, elements: await page.evaluate(() => document.querySelectorAll('*').length) };
  };
  await next();
  const first = await run(400);
  const second = await run(1200);
  assert.ok(second.heap < first.heap * 1.25 + 1, `${first.heap} MB, then ${second.heap} MB`);
  assert.ok(Math.abs(second.elements - first.elements) < 20, `${first.elements} elements, then ${second.elements}`);
});

test('lost_connection_is_shown_and_reconnects', async () => {
  const { page, mock, next } = await watch();
  mock.cut();
  await page.waitForSelector('#lost:visible');
  await says(page, '#state', '^connection lost$');
  await says(page, '#lost-why', 'Shown data is of \\d\\d:\\d\\d:\\d\\d');
  mock.back();
  await page.click('#retry');
  await next();
  await page.waitForSelector('#state[data-is="live"]');
  assert.equal(await page.isVisible('#lost'), false);
  const again = mock.calls.filter(({ path }) => path.startsWith('/admin/v1/stream')).at(-1).path;
  assert.match(again, /since=\d{13}/, 'only what is missing is asked for');
});

test('invalid_lines_are_counted_and_skipped', async () => {
  const { page, mock, next } = await watch();
  const garbled = mock.cluster.frame();
  garbled.models[0].busy = 'much';
  garbled.instances[0].length = 3;
  for (const line of ['null', '[]', '{"frame":5}', '{"events":[{"at":1e300}]}', JSON.stringify({ frame: garbled })]) {
    for (const watcher of mock.watchers) watcher.write(`${line}\n`);
  }
  await next();
  await says(page, '#dropped', '^5 lines not understood$');
  await says(page, '#sentence', 'p99.9 is');
  assert.doesNotMatch(await text(page, 'body'), /NaN|undefined|Infinity/);
  assert.deepEqual(page.faults, []);
});

test('hidden_tab_reads_nothing', async () => {
  const { page, mock, next } = await watch();
  const hide = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await hide(true);
  await until(() => mock.watchers.size === 0);
  await says(page, '#state', '^paused$');
  await hide(false);
  await until(() => mock.watchers.size === 1);
  await next();
  await page.waitForSelector('#state[data-is="live"]');
});

test('dropped_frames_are_shown', async () => {
  const { page, mock, next } = await watch();
  for (const watcher of mock.watchers) watcher.write('{"dropped":3}\n');
  await next();
  await says(page, '#dropped', '^3 frames dropped$');
});

test('query_shows_why_it_was_approximate', async () => {
  const { page, mock } = await watch();
  const query = mock.cluster.queries.findLast(({ outcome, model }) => outcome === 'stand-in' && model === 'resnet50');
  await page.fill('#query', query.id);
  await page.keyboard.press('Enter');
  await says(page, '#queries .lead', 'so a stand-in answered it after');
  assert.match(await text(page, '#queries code'), new RegExp(`^parm ctl query ${query.id}`));
  assert.equal(await page.locator('#queries .steps li').count(), query.timeline.length);
  await page.fill('#query', 'ffffffffffffffff');
  await page.keyboard.press('Enter');
  await says(page, '#queries [role="status"]', 'was not kept');
});

test('groups_are_drawn_as_they_fill', async () => {
  const { page, next } = await watch();
  assert.equal(await page.isVisible('#groups'), false, 'stand-ins make no groups');
  await page.selectOption('#model', { index: 1 });
  await next();
  await page.waitForSelector('#groups .groups .open');
  await says(page, '#groups .lead', '^Filling now: \\d of 4');
});

test('reduced_motion_is_respected', async () => {
  const { page, next } = await watch();
  await page.selectOption('#model', { index: 1 });
  await next();
  await page.waitForSelector('#groups .groups li');
  assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector('#groups .groups li')).animationName), 'none');
});
