// The promises of the pages, by the names in their comments. Each returns its observation, in words.

import assert from 'node:assert/strict';

const URL = 'http://127.0.0.1:8003/';
/** A row must report within this time that its instance has stopped. */
const SOON = 3000;

const row = (number) => `#instances tr[data-key="${number}"]`;
const badge = (number) => `${row(number)} .badge`;
const moving = (page) => page.$$eval('#tiles .value, #tiles .beside, #tiles path', (all) => all.map((each) => each.getAttribute('d') ?? each.textContent).join());

/** Presses Tab until the element of a selector has the focus. */
async function tab(page, selector) {
  for (let step = 0; step < 200; step += 1) {
    await page.keyboard.press('Tab');
    if (await page.evaluate((selector) => document.activeElement.matches(selector), selector)) return;
  }
  throw new Error(`${selector} is not reached by keyboard`);
}

async function admin(path) {
  return (await fetch(`${URL}admin/v1/${path}`)).json();
}

export const PROMISES = {
  async 'the demo'({ printed }) {
    for (const line of [/took longer than\n\d+ ms with least-requests, \d+ ms with hedge, \d+ ms with stand-in/, /\nhedge .*%\n/, /\nNext: parm run/]) {
      assert.match(printed, line);
    }
    return /took longer than\n.*/.exec(printed)[0];
  },

  async 'the answer'({ printed, skipped }) {
    if (skipped) return 'nothing, as the example was not built';
    assert.match(printed, /README\.md: markdown \([\d.]+ %\)/);
    return printed.trim();
  },

  async 'the page'({ browser }) {
    const page = await browser.open(URL);
    await page.waitForSelector('#state[data-is="live"]');
    await page.waitForFunction(() => document.querySelectorAll('#instances tbody tr').length === 4);
    await browser.says('#sentence', /p99(\.9)? is/);
    const before = await moving(page);
    await page.waitForFunction((before) => [...document.querySelectorAll('#tiles .value, #tiles .beside, #tiles path')].map((each) => each.getAttribute('d') ?? each.textContent).join() !== before, before);
    for (const width of [390, 1280]) assert.ok((await browser.beyond(width)) <= 0, `${width} px wide it has to be scrolled sideways`);
    browser.well(URL);
    return `live, figures move, four rows, nobody else asked, 390 px: ${await page.textContent('#sentence')}`;
  },

  async 'the slow one'({ browser }) {
    const { page } = browser;
    const said = await browser.says(badge(3), /slow/);
    await page.waitForFunction(() => document.querySelector('#instances tbody tr')?.dataset.key === '3');
    await browser.picture('instances', { part: '#instances' });
    return `instance 3: ${said}, the first row`;
  },

  async 'the policy'({ browser }) {
    const { page } = browser;
    await page.focus('body');
    await tab(page, '#set-policy');
    await page.keyboard.type('stand-in');
    assert.equal(await page.inputValue('#set-policy'), 'stand-in');
    assert.match(await page.textContent('#set-policy-line'), /^parm ctl set fashion-lenet policy=stand-in/);
    await tab(page, '#controls .main');
    await page.keyboard.press('Enter');
    await page.waitForSelector('dialog[open]');
    await tab(page, 'dialog[open] .main');
    await page.keyboard.press('Enter');
    await page.waitForSelector('dialog[open]', { state: 'detached' });
    assert.equal((await admin('settings/fashion-lenet')).policy, 'stand-in');
    const event = await browser.says('#events', /policy hedge to stand-in/);
    assert.ok(event);
    return 'changed by keyboard alone, in force, among the events';
  },

  async 'the cost'({ browser }) {
    const said = await browser.says('#sentence', /Stand-ins answer [\d.]+ % of queries.*; p99\.9 is/);
    const facts = await browser.says('#savings', /Extra work/);
    assert.match(facts, /Approximate/);
    await browser.picture('page');
    return said;
  },

  async 'the stopped one'({ browser, typedAt }) {
    await browser.page.waitForFunction((badge) => /silent|ejected|connecting/.test(document.querySelector(badge)?.textContent), badge(2), { timeout: SOON, polling: 50 });
    const after = Date.now() - typedAt;
    assert.ok(after <= SOON, `its row said so after ${after} ms`);
    const said = await browser.page.textContent(badge(2));
    await browser.picture('stopped', { part: '#instances' });
    return `instance 2: ${said}, after ${(after / 1000).toFixed(1)} s`;
  },

  async 'the story'({ browser }) {
    const { page } = browser;
    await page.selectOption('#outcome', 'stand-in');
    await page.click('#queries form button');
    await page.waitForFunction(() => [...document.querySelectorAll('#queries tbody .outcome')].every((each) => /stand-in/.test(each.textContent)) && document.querySelector('#queries tbody button'));
    await page.click('#queries tbody button');
    const said = await browser.says('#queries .lead', /so a stand-in answered it after/);
    await page.waitForSelector('#queries .timeline');
    await browser.picture('query', { part: '#queries' });
    return said;
  },

  async 'it is back'({ browser }) {
    return `instance 2: ${await browser.says(badge(2), /^ready/)}`;
  },

  async 'the key'({ browser, terminal }) {
    const page = await browser.open(URL);
    await page.waitForSelector('dialog[open] #key');
    await page.keyboard.type('no key of anybody');
    await page.keyboard.press('Enter');
    await browser.says('#key-why', /not accepted/);
    const { printed } = await terminal.run('printf %s "$PARM_KEY"');
    await page.fill('#key', printed.trim());
    await page.keyboard.press('Enter');
    await page.waitForSelector('#state[data-is="live"]');
    await page.waitForFunction(() => document.querySelectorAll('#instances tbody tr').length === 4);
    browser.well(URL);
    assert.ok(browser.asked.every((url) => !url.includes(printed.trim())), 'the key is in no address');
    return 'asked for, refused when wrong, live with it';
  },

  async 'its own model'({ browser }) {
    const page = await browser.open(URL);
    await page.waitForSelector('#state[data-is="live"]');
    await page.waitForFunction(() => document.querySelectorAll('#instances tbody tr').length === 4);
    await browser.says('#model', /mine/);
    const said = await browser.says('#sentence', /p99(\.9)? is/);
    assert.match(await page.textContent('#savings'), /mine-stand-in/);
    browser.well(URL);
    return said;
  },

  async 'its stand-in'({ browser }) {
    const said = await browser.says('#sentence', /Stand-ins answer [\d.]+ % of queries.*; p99(\.9)? is/);
    await browser.says('#savings', /late answers avoided/);
    await browser.picture('own-model');
    return `${said} ${await browser.page.textContent('#savings .lead')}`;
  },
};
