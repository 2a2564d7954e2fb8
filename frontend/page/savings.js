// Benefit and cost of redundancy: latency with and without it, and its work and approximate answers.

import { bounds, logarithmic, ticks } from './chart.js';
import { facts, h, s, say, set, show } from './dom.js';
import { NAMES, slower } from './histogram.js';
import { beside, count, share, time } from './words.js';

const [WIDTH, LEFT, RIGHT, ROW] = [420, 54, 304, 27];
const ROLES = { copy: 'hedges, copies', parity: 'parities', backup: 'the backup model', 'stand-in': 'stand-ins' };

export class Savings {
  constructor(root) {
    this.lead = h('p.lead');
    this.svg = s('svg', { role: 'img' });
    this.legend = h('p.legend', h('span.with', h('i'), 'as answered'), h('span.without', h('i'), 'without redundancy'));
    this.facts = h('dl.facts');
    root.append(this.lead, this.svg, this.legend, this.facts);
  }

  draw(model, now) {
    for (const part of [this.svg, this.legend]) show(part, now.tail !== null);
    if (now.tail) this.compare(now);
    say(this.lead, this.saved(now));
    facts(this.facts, now.latest ? this.costs(model, now) : []);
  }

  saved({ answered, latest, all, alone, never, buckets }) {
    const late = latest?.late_us;
    if (!answered || !late) return 'No answers in the last minutes.';
    const [is, would] = [slower(all, late, buckets), slower(alone, late, buckets) + never];
    return would > is ? `${count(would - is)} late answers avoided: ${count(is)} instead of ${count(would)} took over ${time(late)}.`
      : `No late answers were avoided: ${count(is)} took over ${time(late)}.`;
  }

  /** Each quantile twice: as measured, and of the queries' own predictions. */
  compare(now) {
    const rows = [...NAMES].filter(([share]) => share <= now.tail).map(([share, name]) => ({ name, is: now.at(share), would: now.without(share) }));
    const [low, high] = bounds(rows.flatMap(({ is, would }) => [is, would]));
    const x = logarithmic([low, high], [LEFT + 8, RIGHT]);
    const floor = rows.length * ROW + 4;
    const text = (at, y, words, anchor, kind) => s('text', { x: at, y, 'text-anchor': anchor, class: kind }, words);
    set(this.svg, 'viewBox', `0 0 ${WIDTH} ${floor + 14}`);
    set(this.svg, 'aria-label', rows.map(({ name, is, would }) => `${name} ${time(is)}, ${would === Infinity ? 'not known' : time(would)} without redundancy`).join('; '));
    // Labels of about this width must not touch.
    const apart = ticks(low, high).reduce((kept, us) => (kept.length && x.at(us) - x.at(kept.at(-1)) < 48 ? kept : [...kept, us]), []);
    this.svg.replaceChildren(...apart.map((us) => text(x.at(us), floor + 10, time(us), 'middle')), ...rows.flatMap(({ name, is, would }, at) => {
      const y = at * ROW + 16;
      const there = would && would !== Infinity;
      return [text(LEFT - 6, y + 4, name, 'end'), s('line.rail', { x1: LEFT + 8, x2: RIGHT, y1: y, y2: y }),
        there && s('line.gain', { x1: x.at(is), x2: x.at(would), y1: y, y2: y }),
        there && s('circle.without', { cx: x.at(would), cy: y, r: 4.5 }),
        s('circle.with', { cx: x.at(is), cy: y, r: 4.5 }),
        text(RIGHT + 12, y + 4, there && would > is * 1.1 ? `${beside(would, is)} → ${time(is)}` : time(is), 'start', 'figure')].filter(Boolean);
    }));
  }

  costs(model, { latest, counts, work, extra, approximate }) {
    const given = latest.approximate;
    return [
      ['Extra work', extra === null ? '–' : `${share(extra)} on top`],
      ...Object.entries(ROLES).filter(([role]) => work[role]).map(([role, name]) => [`  by ${name}`, share(work[role] / work.deployed)]),
      ['Approximate', given ? `${share(approximate)}; ${count(given[0])} of at most ${count(given[1])} in ${count(given[2])}` : share(approximate)],
      latest.agreement !== null && ['Agreement, live', `${share(latest.agreement)} say the same${latest.withheld ? ': withheld' : ''}`, latest.withheld && 'bad'],
      model.stand_in && ['Stand-ins', `${model.stand_in}: ${count(counts.stand_ins_late)} late, ${count(counts.stand_ins_served)} given`],
      counts.hedges && ['Hedges', `${count(counts.hedges)}, of which ${count(counts.hedges_won)} answered first`],
      counts.explored && ['Explorations', `${count(counts.explored)} copies that no query waited for`],
      counts.groups && ['Parities', `${count(counts.parities)} sent for ${count(counts.groups)} groups, ${count(counts.parities_late)} too late`],
      counts.retries && ['Retries', `${count(counts.retries)}; ${count(counts.retries_refused)} refused by the budget`],
    ].filter(Boolean);
  }
}
