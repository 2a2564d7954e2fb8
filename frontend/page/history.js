// What the stream has said, within bounds: so many seconds of frames, so many events, a short series for each instance. What falls out
// of them is gone, however long the page stays open.

import { sound } from './sound.js';

const SERIES = 60;

export class History {
  constructor() {
    this.hello = null;
    this.models = [];
    this.instances = new Map();
    this.frames = [];
    this.events = [];
    this.rows = [];
    /** Slowness of instances over the last frames, by number. */
    this.series = new Map();
    this.dropped = 0;
    /** Lines that were not understood. */
    this.strange = 0;
  }

  /** Takes a line of the stream; returns what it was, and `null` where that was not understood. */
  take(line) {
    const [kind, good] = sound(line, this.hello);
    if (!good) {
      this.strange += 1;
      return null;
    }
    this[`take_${kind}`]?.(line[kind]);
    return kind;
  }

  /** When the last frame was made. */
  get last() { return this.frames.at(-1)?.at ?? 0; }

  /** What a frame says of a model. */
  static part(frame, m) { return frame.models.find((model) => model.m === m); }

  /** What the frames of the last so many milliseconds say of a model. */
  parts(m, ms) {
    const from = this.last - ms;
    return this.frames.filter((frame) => frame.at > from).map((frame) => History.part(frame, m)).filter(Boolean);
  }

  take_hello(hello) {
    // Another frontend, or the same one started anew: its counts and numbers are others, and may mean something else.
    const self = ({ at, role, key, ...rest }) => JSON.stringify(rest);
    if (this.hello && self(this.hello) !== self(hello)) Object.assign(this, new History());
    this.hello = hello;
    this.anew = true;
  }

  take_models(models) { this.models = models; }

  take_instances(instances) {
    this.instances = new Map(instances.slice(0, this.hello.bounds.instances).map((one) => [one.number, one]));
    for (const number of this.series.keys()) if (!this.instances.has(number)) this.series.delete(number);
  }

  take_events(events) {
    // A stream that begins anew tells them all again.
    this.events = [...(this.anew ? [] : this.events), ...events].slice(-this.hello.bounds.events);
    this.anew = false;
  }

  take_past(frame) {
    if (frame.at <= this.last) return;
    this.frames.push(frame);
    const from = frame.at - this.hello.history_s * 1000;
    while (this.frames.length > this.hello.history_s || this.frames[0].at <= from) this.frames.shift();
  }

  take_frame(frame) {
    const { instances, ...rest } = frame;
    this.take_past(rest);
    const { columns, states, reasons } = this.hello;
    this.rows = instances.slice(0, this.hello.bounds.instances).map((cells) => {
      const row = Object.fromEntries(columns.map((column, at) => [column, cells[at]]));
      return { ...row, state: states[row.state], reason: reasons[row.reason], ...this.instances.get(row.number), over_ms: frame.over_ms };
    });
    for (const row of this.rows) {
      const series = this.series.get(row.number) ?? [];
      series.push(row.state === 'ready' ? row.slowness : null);
      if (series.length > SERIES) series.shift();
      this.series.set(row.number, series);
    }
  }

  take_dropped(count) { this.dropped += count; }
}
