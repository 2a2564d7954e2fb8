// One query from its arrival to its answer and beyond, as a chart of its jobs and in the frontend's words,
// which `parm ctl query` prints too.

import { linear } from './chart.js';
import { h, s } from './dom.js';
import { time } from './words.js';

const JOBS = { given: 'prediction', hedged: 'hedge', retried: 'retry', stand_in_given: 'stand-in', parity_given: 'parity', backup_given: 'backup' };
const ENDS = ['stand_in_in', 'parity_in', 'backup_in', 'prediction_in', 'failed'];

/** Jobs of a query; `to` is `null` for one that has not ended. */
export function jobs({ timeline }) {
  const all = timeline.filter(({ what }) => JOBS[what]).map(({ what, instance, job, at_us }) => ({ kind: what, instance, job, from: at_us, to: null }));
  for (const entry of timeline) {
    // An exact or hedged answer also ends its own job.
    const own = { exact: 'given', hedged: 'hedged' }[entry.outcome];
    const job = all.find((job) => (ENDS.includes(entry.what) ? job.job === entry.job : job.kind === own && job.to === null));
    if (job) job.to = entry.at_us;
  }
  return all;
}

const [WIDTH, LEFT, RIGHT, ROW, TOP] = [720, 152, 700, 26, 36];

function picture(query) {
  const end = Math.max(query.took_us, ...query.timeline.map(({ at_us }) => at_us ?? 0));
  const x = linear([0, end * 1.02], [LEFT, RIGHT]);
  const rows = jobs(query);
  const floor = TOP + rows.length * ROW;
  const text = (at, y, words, anchor, kind) => s('text', { x: at, y, 'text-anchor': anchor, class: kind }, words);
  const late = query.timeline.find(({ what }) => what === 'late');
  // Each on its own line: they may be close to each other.
  const mark = (us, words, kind, anchor, y) => [s('line', { class: kind, x1: x.at(us), x2: x.at(us), y1: y - 10, y2: floor }), text(x.at(us) + (anchor === 'end' ? -4 : 4), y, words, anchor, kind)];
  return s('svg', { viewBox: `0 0 ${WIDTH} ${floor + 20}`, role: 'img', 'aria-label': query.why, class: 'timeline' },
    rows.flatMap(({ kind, instance, from, to }, at) => [text(LEFT - 10, TOP + at * ROW + 17, `${JOBS[kind]}, instance ${instance}`, 'end'),
      s('rect', { class: `job ${kind}${to === null ? ' open' : ''}`, x: x.at(from), y: TOP + at * ROW + 4, width: Math.max(2, x.at(to ?? end * 1.02) - x.at(from)), height: ROW - 8, rx: 3 })]),
    late ? mark(late.at_us, 'late', 'late', 'end', TOP - 6) : [], mark(query.took_us, `answered, ${time(query.took_us)}`, 'answered', x.at(query.took_us) > RIGHT - 120 ? 'end' : 'start', TOP - 21),
    text(LEFT, floor + 15, '0', 'start'), text(RIGHT, floor + 15, time(end * 1.02), 'end'));
}

/** Contents for a query. */
export function told(query) {
  return [h('p.lead', query.why), h('div.wide', { tabindex: 0, role: 'region', 'aria-label': 'Timeline' }, picture(query)),
    h('ol.steps', query.timeline.map((entry) => h('li', { 'data-mark': entry.what === 'answered' ? 'yes' : null },
      h('span.at', time(entry.at_us)), h('span', entry.text))))];
}
