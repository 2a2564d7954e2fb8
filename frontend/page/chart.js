// Scales and paths. Everything drawn is SVG of text and lines; a table with the same figures stands behind each chart.

import { s } from './dom.js';

/** A logarithmic scale from values to places, and back. */
export function logarithmic([low, high], [from, to]) {
  const [a, b] = [Math.log(low), Math.log(high)];
  const at = (value) => from + ((Math.log(Math.max(value, low)) - a) / (b - a)) * (to - from);
  return { at, low, high };
}

export function linear([low, high], [from, to]) {
  return { at: (value) => from + ((value - low) / (high - low || 1)) * (to - from), low, high };
}

/** The round bounds of a logarithmic scale that holds these values: 1, 2 or 5 of a power of ten. */
export function bounds(low, high) {
  const steps = [1, 2, 5];
  const down = (value) => {
    const power = 10 ** Math.floor(Math.log10(value));
    return Math.max(...steps.map((step) => step * power).filter((step) => step <= value * 1.0001));
  };
  const up = (value) => {
    const power = 10 ** Math.floor(Math.log10(value));
    return Math.min(...[...steps, 10].map((step) => step * power).filter((step) => step >= value * 0.9999));
  };
  return [down(low), Math.max(up(high), down(low) * 2)];
}

/** 1, 2 and 5 of each power of ten within bounds; only as many as have room. */
export function ticks(low, high) {
  const all = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
    for (const step of [1, 2, 5]) if (step * power >= low * 0.999 && step * power <= high * 1.001) all.push(step * power);
  }
  if (all.length <= 7) return all;
  return all.filter((tick) => /^1/.test(tick.toExponential()));
}

/** The stretches of a series without gaps: points that lie further apart than `gap`, or are no numbers, begin another. */
export function stretches(points, gap) {
  const out = [];
  let open = null;
  for (const point of points) {
    if (point.y === null || !Number.isFinite(point.y)) { open = null; continue; }
    if (!open || point.at - open.at(-1).at > gap) out.push((open = []));
    open.push(point);
  }
  return out;
}

export function line(points, x, y, gap) {
  return stretches(points, gap).map((part) => {
    const [first, ...rest] = part.map((point) => `${x.at(point.at).toFixed(1)} ${y.at(point.y).toFixed(1)}`);
    return `M${first}${rest.length ? `L${rest.join(' ')}` : 'h.5'}`;
  }).join('');
}

/** What lies between two series over the same moments. */
export function area(points, x, y, gap) {
  return stretches(points, gap).map((part) => {
    const edge = (name) => part.map((point) => `${x.at(point.at).toFixed(1)} ${y.at(point[name]).toFixed(1)}`);
    return `M${edge('y').join('L')}L${edge('low').reverse().join('L')}Z`;
  }).join('');
}

/** A small line without axes, beside a figure that says the last value. */
export class Spark {
  constructor(width = 120, height = 28) {
    this.size = [width, height];
    this.path = s('path', { class: 'spark' });
    this.root = s('svg', { viewBox: `0 0 ${width} ${height}`, class: 'sparkline', 'aria-hidden': 'true', preserveAspectRatio: 'none' }, this.path);
  }

  /** `values` may hold `null`; the scale begins at `low`. */
  draw(values, low = 0, least = 1e-9) {
    const [width, height] = this.size;
    const high = Math.max(low + least, ...values.filter((value) => value !== null));
    const x = linear([0, Math.max(1, values.length - 1)], [0, width]);
    const y = linear([low, high], [height - 2, 2]);
    const points = values.map((value, at) => ({ at, y: value }));
    this.path.setAttribute('d', line(points, x, y, 1));
  }
}
