// What redundancy saved and what it cost, side by side: latency with and without it, and the work and the approximation it took.

import { bounds, logarithmic, ticks } from './chart.js';
import { h, keyed, s, say, set, show } from './dom.js';
import { NAMES, slower } from './histogram.js';
import { beside, count, share, time } from './words.js';

const [WIDTH, LEFT, ROW] = [420, 46, 26];
const ROLES = { copy: 'hedges and copies', parity: 'parities', backup: 'the backup model', 'stand-in': 'stand-ins' };

export class Savings {
  constructor(root) {
    this.lead = h('p', { class: 'lead' });
    this.svg = s('svg', { role: 'img', 'aria-labelledby': 'savings-title' });
    this.title = s('title', { id: 'savings-title' });
    this.legend = h('p', { class: 'legend' }, h('span', { class: 'with' }, h('i', {}), 'as answered'), h('span', { class: 'without' }, h('i', {}), 'without redundancy'));
    this.facts = h('dl', { class: 'facts' });
    root.append(this.lead, this.svg, this.legend, this.facts);
  }

  draw(model, now, hello) {
    const known = now.tail !== null;
    show(this.lead, true);
    show(this.svg, known);
    show(this.legend, known);
    if (known) this.compare(now, hello);
    say(this.lead, this.saved(now));
    keyed(this.facts, this.costs(model, now), ([name]) => name, ([name]) => h('div', {}, h('dt', {}, name), h('dd', {})), (row, [, text, tone]) => {
      say(row.lastChild, text);
      set(row, 'data-tone', tone ?? null);
    });
  }

  saved(now) {
    const { latest } = now;
    if (!now.answered || !latest?.late_us) return 'No answers in the last minutes.';
    const late = latest.late_us;
    const [is, would] = [slower(now.all, late, now.buckets), slower(now.alone, late, now.buckets) + now.never];
    if (would <= is) return `No late answers were avoided: ${count(is)} took over ${time(late)}, with redundancy or without.`;
    return `${count(would - is)} late answers avoided: ${count(is)} instead of ${count(would)} took over ${time(late)}.`;
  }

  /** Each quantile twice: as it is, and of the queries' own predictions. */
  compare(now) {
    const rows = [...NAMES].filter(([share]) => share <= now.tail || share === 0.5).map(([share, name]) => ({ name, is: now.at(share), would: now.without(share) }));
    const values = rows.flatMap(({ is, would }) => [is, would]).filter((us) => us && Number.isFinite(us));
    const [low, high] = bounds(Math.min(...values) * 0.95, Math.max(...values) * 1.05);
    const x = logarithmic([low, high], [LEFT + 8, WIDTH - 62]);
    const floor = rows.length * ROW + 6;
    const text = (at, y, words, anchor, kind) => s('text', { x: at, y, 'text-anchor': anchor, class: kind ?? null }, words);
    const drawn = rows.flatMap(({ name, is, would }, at) => {
      const y = at * ROW + 16;
      const there = would !== null && Number.isFinite(would);
      const end = Math.max(x.at(is), there ? x.at(would) : 0);
      return [text(LEFT - 6, y + 4, name, 'end'), s('line', { class: 'rail', x1: LEFT + 8, x2: WIDTH - 62, y1: y, y2: y }),
        there ? s('line', { class: 'gain', x1: x.at(is), x2: x.at(would), y1: y, y2: y }) : null,
        there ? s('circle', { class: 'without', cx: x.at(would), cy: y, r: 4.5 }) : null,
        s('circle', { class: 'with', cx: x.at(is), cy: y, r: 4.5 }),
        text(Math.min(end + 10, WIDTH - 84), y + 4, there && would > is * 1.1 ? `${beside(is, would).split(' ')[0]} → ${time(would)}` : time(is), 'start', 'figure')];
    });
    const grid = ticks(low, high).map((us) => text(x.at(us), floor + 10, time(us), 'middle', 'tick'));
    set(this.svg, 'viewBox', `0 0 ${WIDTH} ${floor + 14}`);
    this.title.textContent = rows.map(({ name, is, would }) => `${name} ${time(is)}, ${would === Infinity ? 'not known' : time(would)} without redundancy`).join('; ');
    this.svg.replaceChildren(this.title, ...drawn.filter(Boolean), ...grid);
  }

  costs(model, now) {
    const { latest, counts, work } = now;
    if (!latest) return [];
    const costs = [['Extra work', now.extra === null ? '–' : `${share(now.extra)} of the deployed model's time`]];
    for (const [role, name] of Object.entries(ROLES)) if (work[role]) costs.push([`  by ${name}`, share(work[role] / work.deployed)]);
    const given = latest.approximate;
    costs.push(['Approximate answers', given ? `${share(now.approximate)}; of the last ${count(given[2])}: ${count(given[0])} of at most ${count(given[1])}` : share(now.approximate),
      given && given[0] >= given[1] * 0.9 ? 'warn' : null]);
    if (latest.agreement !== null) costs.push(['Agreement, live', `${share(latest.agreement)} say the same as the prediction${latest.withheld ? ': withheld' : ''}`, latest.withheld ? 'bad' : null]);
    if (model.stand_in) {
      costs.push(['Stand-ins', `${model.stand_in}: ${count(counts.stand_ins_spare)} early, ${count(counts.stand_ins_late)} late, ${count(counts.stand_ins_served)} given`]);
    }
    if (counts.hedges) costs.push(['Hedges', `${count(counts.hedges)}, of which ${count(counts.hedges_won)} answered first`]);
    if (counts.groups) costs.push(['Parities', `${count(counts.parities)} for ${count(counts.groups)} groups; ${count(counts.reconstructions_served)} reconstructions given`]);
    if (counts.retries) costs.push(['Retries', `${count(counts.retries)}; ${count(counts.retries_refused)} not for want of budget`]);
    return costs;
  }
}
