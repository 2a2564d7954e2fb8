// The stream of frames, read with fetch because an EventSource cannot send a key. It reconnects with growing delays, and pauses
// while the page is hidden.

const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
/** Intervals without a line after which the connection counts as lost. */
const SILENCE = 6;
/** Limit of a line: a frame has at most a thousand instances. */
const LONGEST_LINE = 4 << 20;

/** Splits received text into lines of JSON. */
export class Lines {
  constructor() { this.rest = ''; }

  /** Objects that this text completes. */
  push(text) {
    const lines = (this.rest + text).split('\n');
    this.rest = lines.pop();
    if (this.rest.length > LONGEST_LINE) throw new Error('a line of the stream is too long');
    return lines.filter((line) => line.trim()).map((line) => JSON.parse(line));
  }
}

/** Milliseconds before the next attempt: doubles up to a limit, with jitter for each open page. */
export function wait(tries, random = Math.random()) {
  return Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** Math.min(tries, 10)) * (0.75 + 0.5 * random);
}

/**
 * Reads the stream until it is stopped. `onLine` receives every line, `onState` the connection's state: `{ is: 'connecting' | 'live' |
 * 'lost' | 'locked' | 'paused', until, why }`. `since` returns the time of the last known frame, `key` the key to send.
 */
export class Stream {
  constructor({ key, since, onLine, onState }) {
    Object.assign(this, { key, since, onLine, onState });
    this.tries = 0;
  }

  /** Connects now, whatever the state. */
  start() {
    this.stop();
    const run = new AbortController();
    this.run = run;
    this.read(run).catch((error) => {
      if (this.run !== run) return;
      const delay = wait(this.tries);
      this.tries += 1;
      this.timer = setTimeout(() => this.start(), delay);
      this.onState({ is: 'lost', until: Date.now() + delay, why: error instanceof TypeError ? 'the frontend does not answer' : error.message });
    });
  }

  stop() {
    clearTimeout(this.timer);
    clearTimeout(this.watch);
    this.run?.abort();
    this.run = null;
  }

  /** Stops reading until it is started again. */
  pause() {
    this.stop();
    this.onState({ is: 'paused' });
  }

  async read(run) {
    this.onState({ is: 'connecting' });
    this.guard(run, 10_000);
    const key = this.key();
    const since = this.since();
    const response = await fetch(`/admin/v1/stream${since ? `?since=${since}` : ''}`, {
      headers: key ? { authorization: `Bearer ${key}` } : {}, signal: run.signal, cache: 'no-store',
    });
    if (response.status === 401 || response.status === 403) {
      this.stop();
      this.onState({ is: 'locked', why: key ? 'the key was not accepted' : 'a key is needed' });
      return;
    }
    if (!response.ok) throw new Error(`the frontend returned status ${response.status}`);
    const lines = new Lines();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let interval = 1000;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new Error('the frontend ended the connection');
      if (this.run !== run) return;
      for (const line of lines.push(value)) {
        if (line?.hello?.interval_ms > 0) interval = line.hello.interval_ms;
        if (line?.frame) {
          this.tries = 0;
          this.onState({ is: 'live' });
        }
        this.onLine(line);
      }
      this.guard(run, Math.max(2000, interval * SILENCE));
    }
  }

  /** Closes a connection that receives nothing. */
  guard(run, ms) {
    clearTimeout(this.watch);
    this.watch = setTimeout(() => run.abort(new Error('nothing comes')), ms);
  }
}
