// Bounded history of the stream: seconds of frames, events, and a short series for each instance. Older data is dropped,
// however long the page stays open.

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
    /** Number of lines that were not understood. */
    this.strange = 0;
  }

  /** Processes a line of the stream; returns its kind, or `null` if it was not understood. */
  take(line) {
    const [kind, good] = sound(line, this.hello);
    if (!good) {
      this.strange += 1;
      return null;
    }
    this[`take_${kind}`]?.(line[kind]);
    return kind;
  }

  /** Time of the last frame. */
  get last() { return this.frames.at(-1)?.at ?? 0; }

  /** A frame's data of a model. */
  static part(frame, m) { return frame.models.find((model) => model.m === m); }

  /** Data of a model in the frames of the last milliseconds. */
  parts(m, ms) {
    const from = this.last - ms;
    return this.frames.filter((frame) => frame.at > from).map((frame) => History.part(frame, m)).filter(Boolean);
  }

  take_hello(hello) {
    // Another frontend, or the same one restarted: its counts and numbers start anew.
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
    // A new stream sends all of them again.
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
