// The steps that a page of the documentation gives its reader, in order: shell blocks, and promises to check.
//
// ```console     Commands. Where lines begin with `$ ` these are the commands and the others what they print; else every line is a command.
// <!-- see: NAME -->   What the text just before promises; `promises.mjs` has it by that name.

/** `[{ kind: 'run', command, prints, at }, { kind: 'see', name, at }]`, `at` a line of the page. */
export function steps(page) {
  const found = [];
  let block = null;
  for (const [index, line] of page.split('\n').entries()) {
    const at = index + 1;
    if (block) {
      if (line !== '```') block.lines.push(line);
      else {
        found.push(...made(block));
        block = null;
      }
    } else if (/^```\w/.test(line)) block = { kind: line.slice(3), lines: [], at: at + 1 };
    else if (/^<!-- see: /.test(line)) found.push({ kind: 'see', name: line.slice(10, -4), at });
  }
  return found;
}

function made({ kind, lines, at }) {
  return kind === 'console' ? commands(lines, at) : [];
}

function commands(lines, from) {
  const told = lines.some((line) => line.startsWith('$ '));
  const found = [];
  let open = false;
  for (const [index, line] of lines.entries()) {
    const last = found.at(-1);
    if (open) last.command += `\n${line}`;
    else if (told && !line.startsWith('$ ')) {
      if (line.trim()) last.prints.push(line);
    } else found.push({ kind: 'run', command: told ? line.slice(2) : line, prints: [], at: from + index });
    open = (open || !told || line.startsWith('$ ')) && line.endsWith('\\');
  }
  return found;
}

/** Returns the promised lines that were not printed. Figures vary between runs: digits, units, bar lengths and gaps may vary. */
export function missing(promised, printed) {
  const lines = printed.split('\n').map((line) => line.trim());
  let from = 0;
  return promised.filter((line) => {
    if (/^\s*\.\.\.\s*$/.test(line)) return false;
    const at = lines.findIndex((real, index) => index >= from && pattern(line).test(real));
    if (at >= 0) from = at + 1;
    return at < 0;
  });
}

function pattern(line) {
  const [head, open] = line.trim().endsWith('...') ? [line.trim().slice(0, -3), true] : [line.trim(), false];
  const plain = head.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  const loose = plain.replace(/\d+(?:\\?[.,]\d+)*(?:\s(?:ns|us|µs|ms|s)\b)?/g, '[\\d.,]+(?: (?:ns|us|µs|ms|s))?').replace(/\s+/g, '\\s+');
  return new RegExp(`^${loose}${open ? '' : '$'}`);
}
