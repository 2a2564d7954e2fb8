// The reader's browser; it records all requests and all errors of the page.

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, join } from 'node:path';

const { PAGE_TOOLS, CHROMIUM, PICTURES, PAGE } = process.env;
const { chromium } = createRequire(`${PAGE_TOOLS}/`)('playwright-core');
const PATIENCE = 120_000;

export class Browser {
  static async start() {
    const one = new Browser();
    one.chromium = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-gpu'] });
    if (PICTURES) mkdirSync(PICTURES, { recursive: true });
    return one;
  }

  /** Goes to an address, in its own tab. */
  async open(url, { width = 1280 } = {}) {
    await this.page?.context().close();
    const context = await this.chromium.newContext({ viewport: { width, height: 900 }, colorScheme: 'light', reducedMotion: 'reduce' });
    this.page = await context.newPage();
    this.page.setDefaultTimeout(PATIENCE);
    this.asked = [];
    this.faults = [];
    this.page.on('request', (request) => this.asked.push(request.url()));
    this.page.on('pageerror', (error) => this.faults.push(error.message));
    this.page.on('console', (message) => { if (/Content Security Policy|Refused to/.test(message.text())) this.faults.push(message.text()); });
    // Serves the files of a folder instead of those in the binary, for work on the page.
    if (PAGE) await this.page.route(/\/page\/[\w.]+$/, (route) => route.fulfill({ path: join(PAGE, basename(route.request().url())) }));
    await this.page.goto(url);
    return this.page;
  }

  /** Asserts that the page sent requests only to its own frontend, and had no error. */
  well(url) {
    assert.deepEqual(this.asked.filter((asked) => !asked.startsWith(url)), [], 'it asks another host');
    assert.deepEqual(this.faults, []);
  }

  /** Waits until a selector's element has this text. */
  async says(selector, words, timeout = PATIENCE) {
    await this.page.waitForFunction(([selector, words]) => new RegExp(words).test(document.querySelector(selector)?.textContent), [selector, words.source ?? words], { timeout, polling: 50 });
    return (await this.page.textContent(selector)).trim();
  }

  /** Returns how many pixels a screen of this width would scroll sideways. */
  async beyond(width) {
    await this.page.setViewportSize({ width, height: 900 });
    const beyond = await this.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    await this.page.setViewportSize({ width: 1280, height: 900 });
    return beyond;
  }

  /** Takes a picture of the page, or of a part of it, if pictures are requested. */
  async picture(name, { part, width = 1280, height = 900 } = {}) {
    if (!PICTURES) return;
    await this.page.setViewportSize({ width, height });
    await this.page.evaluate(() => scrollTo(0, 0));
    const path = join(PICTURES, `${name}.png`);
    await (part ? this.page.locator(part).screenshot({ path }) : this.page.screenshot({ path }));
    await this.page.setViewportSize({ width: 1280, height: 900 });
  }

  close() { return this.chromium.close(); }
}
