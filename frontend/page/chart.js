// Scales and paths. All drawings are SVG lines and text; the same figures are in words or in a table next to them.

import { s } from './dom.js';

/** Positions of values on a logarithmic scale. */
export function logarithmic([low, high], [from, to]) {
  const scale = linear([Math.log(low), Math.log(high)], [from, to]);
  return { at: (value) => scale.at(Math.log(Math.max(value, low))) };
}

export function linear([low, high], [from, to]) {
  return { at: (value) => from + ((value - low) / (high - low || 1)) * (to - from) };
}

const STEPS = [1, 1.5, 2, 3, 5, 7, 10];

/** Round bounds around these values with a margin; values that are not positive numbers are ignored. */
export function bounds(values) {
  const known = values.filter((value) => value > 0 && Number.isFinite(value));
  const [low, high] = [Math.min(...known) * 0.95, Math.max(...known) * 1.05];
  const of = (value, fits, pick) => {
    const power = 10 ** Math.floor(Math.log10(value));
    return power * pick(...STEPS.filter((step) => fits(step * power)));
  };
  const least = of(low, (step) => step <= low, Math.max);
  return [least, Math.max(least * 2, of(high, (step) => step >= high, Math.min))];
}

/** 1, 2 and 5 of each power of ten within bounds, or only the powers if there are many. */
export function ticks(low, high) {
  const all = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
    for (const step of [1, 2, 5]) if (step * power >= low * 0.999 && step * power <= high * 1.001) all.push(step * power);
  }
  return all.length <= 7 ? all : all.filter((tick) => tick.toExponential().startsWith('1'));
}

/** Segments of a series: a gap of more than `gap`, or a value that is not a number, starts another. */
export function stretches(points, gap) {
  const out = [];
  let open = null;
  for (const point of points) {
    if (point.y === null || !Number.isFinite(point.y)) {
      open = null;
      continue;
    }
    if (!open || point.at - open.at(-1).at > gap) out.push((open = []));
    open.push(point);
  }
  return out;
}

const place = (x, y, at, value) => `${x.at(at).toFixed(1)} ${y.at(value).toFixed(1)}`;

export function line(points, x, y, gap) {
  return stretches(points, gap).map((part) => `M${part.map((point) => place(x, y, point.at, point.y)).join('L')}h.5`).join('');
}

/** Area between `low` and `y` of each point. */
export function area(points, x, y, gap) {
  return stretches(points, gap).map((part) => `M${part.map((point) => place(x, y, point.at, point.y)).join('L')}L${part.reverse().map((point) => place(x, y, point.at, point.low)).join('L')}Z`).join('');
}

/** A small line without axes, next to the figure of its last value. */
export class Spark {
  constructor(width = 120, height = 28) {
    this.size = [width, height];
    this.path = s('path.spark');
    this.root = s('svg', { viewBox: `0 0 ${width} ${height}`, class: 'sparkline', 'aria-hidden': 'true', preserveAspectRatio: 'none' }, this.path);
  }

  /** `values` may contain `null`; the scale covers at least 0 to `least`. */
  draw(values, least) {
    const [width, height] = this.size;
    const x = linear([0, Math.max(1, values.length - 1)], [0, width]);
    const y = linear([0, Math.max(least, ...values)], [height - 2, 2]);
    this.path.setAttribute('d', line(values.map((value, at) => ({ at, y: value })), x, y, 1));
  }
}
