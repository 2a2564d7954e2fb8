// The `parm ctl` command equivalent to a control.

const USUAL = 'http://127.0.0.1:8003';

export function set(model, changes) {
  return line('set', word(model), ...Object.entries(changes).map(([path, value]) => `${path}=${word(value)}`));
}

/** `drain`, `eject` or `return`, for one instance or several. */
export function order(name, ...numbers) {
  return line(name === 'undrain' ? 'return' : name, ...numbers);
}

export function query(id) { return line('query', id); }

function line(...words) {
  const here = globalThis.location?.origin ?? USUAL;
  return ['parm', 'ctl', ...words, ...(here === USUAL ? [] : ['--url', here])].join(' ');
}

/** Quotes an argument if a shell requires it. */
function word(value) {
  const text = String(value);
  return /^[\w.+:@%/=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Builds a patch (RFC 7396) from changes by path: `{ 'coding.k': 4 }` becomes `{ coding: { k: 4 } }`. */
export function patch(changes) {
  const out = {};
  for (const [path, value] of Object.entries(changes)) {
    const names = path.split('.');
    const last = names.pop();
    const at = names.reduce((at, name) => (at[name] ??= {}), out);
    at[last] = value;
  }
  return out;
}

/** The value at a path. */
export function at(settings, path) {
  return path.split('.').reduce((at, name) => at?.[name], settings);
}
