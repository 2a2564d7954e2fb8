// Numbers in words, with about three digits: more are noise in values that change every second.

/** A time in microseconds: `1.2 ms`, `24 ms`, `1.4 s`. */
export function time(us) {
  if (us === null || us === undefined || Number.isNaN(us)) return '–';
  if (us === Infinity) return 'never';
  const [value, unit] = us < 995 ? [us, 'µs'] : us < 999_500 ? [us / 1000, 'ms'] : [us / 1e6, 's'];
  return `${figure(value)} ${unit}`;
}

/** The second of two adjacent times: without its unit if that is the first one's. */
export function beside(us, first) {
  const [text, unit] = time(us).split(' ');
  return time(first).endsWith(` ${unit}`) ? text : time(us);
}

export function figure(value) {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size < 0.995) return value.toFixed(2);
  return size < 9.95 ? value.toFixed(1) : count(Math.round(value));
}

/** `12,345`. */
export function count(value) {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

/** `1.1 %` from a fraction. */
export function share(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  const percent = value * 100;
  if (percent === 0) return '0 %';
  if (percent < 0.01) return '< 0.01 %';
  return `${percent < 0.995 ? percent.toFixed(2) : percent < 99.95 ? percent.toFixed(1) : percent.toFixed(0)} %`;
}

/** A duration in milliseconds: `8 s`, `4 min`, `3.2 h`. */
export function span(ms) {
  if (ms === null || ms === undefined) return '–';
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10 && ms % 1000) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${figure(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}

/** Time of day: `13:22:10`. */
export function clock(at) {
  const date = new Date(at);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, '0')).join(':');
}

/** `1 instance`, `3 instances`, `2 queries`. */
export function many(number, noun) {
  const plural = noun.endsWith('y') ? `${noun.slice(0, -1)}ies` : `${noun}s`;
  return `${count(number)} ${number === 1 ? noun : plural}`;
}

/** `1`, `1 and 2`, `1, 2 and 3`. */
export function list(items) {
  return items.length < 2 ? items.join('') : `${items.slice(0, -1).join(', ')} and ${items.at(-1)}`;
}

/** Names without the long prefix or suffix that all of them share, cut at separators so that ports and octets stay whole. */
export function apart(names) {
  const [first = '', ...others] = names;
  const shared = (same) => {
    let length = 0;
    while (length < first.length && others.every((other) => same(other, length))) length += 1;
    return others.length && length > 12 ? length : 0;
  };
  const same = shared((other, at) => other[at] === first[at]);
  const end = shared((other, at) => other.at(-1 - at) === first.at(-1 - at));
  const head = first.slice(0, same).search(/[^-.:/]*$/);
  const tail = end && first.slice(-end).replace(/^[^-.:/]*/, '').length;
  return new Map(names.map((name) => [name, `${head ? '…' : ''}${name.slice(head, name.length - tail)}${tail ? '…' : ''}`]));
}
