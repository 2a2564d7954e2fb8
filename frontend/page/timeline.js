// One query from its arrival to its answer and beyond, as a picture of who worked on it and as sentences.

import { linear } from './chart.js';
import { h, s } from './dom.js';
import { share, time } from './words.js';

const BEGINS = ['given', 'hedged', 'retried', 'stand_in_given', 'parity_given', 'backup_given'];
const ENDS = ['stand_in_in', 'parity_in', 'backup_in', 'prediction_in', 'failed'];
const NAMES = { given: 'prediction', hedged: 'hedge', retried: 'retry', stand_in_given: 'stand-in', parity_given: 'parity', backup_given: 'backup' };
const OUTCOMES = { exact: 'its own prediction', hedged: 'a hedge', reconstructed: 'a reconstruction', 'stand-in': 'a stand-in', backup: 'the backup model',
  default: 'the default answer', rejected: 'a refusal', failed: 'a failure' };

/** Jobs for a query: `{ name, instance, from, to, kind }`; `to` is `null` for one that has not ended. */
export function jobs(query) {
  const answered = query.timeline.find((entry) => entry.what === 'answered');
  const all = query.timeline.filter((entry) => BEGINS.includes(entry.what)).map((entry) => ({ kind: entry.what, name: NAMES[entry.what], instance: entry.instance, job: entry.job, from: entry.at_us, to: null }));
  for (const entry of query.timeline.filter((entry) => ENDS.includes(entry.what))) {
    const job = all.find((job) => job.job === entry.job);
    if (job) job.to = entry.at_us;
  }
  // An exact or hedged answer is the end of its own job.
  if (answered && (answered.outcome === 'exact' || answered.outcome === 'hedged')) {
    const job = all.find((job) => job.to === null && (answered.outcome === 'hedged') === (job.kind === 'hedged'));
    if (job) job.to = answered.at_us;
  }
  return all;
}

/** Why it was answered as it was, in a sentence or two. */
export function why(query) {
  const { outcome, took_us: took, alone_us: alone } = query;
  const late = query.timeline?.find((entry) => entry.what === 'late');
  const own = query.timeline?.find((entry) => entry.what === 'given');
  const came = alone === null ? 'has not come yet' : `came ${time(alone)} after its arrival`;
  if (outcome === 'exact') return `Its own prediction answered it after ${time(took)}.`;
  if (outcome === 'rejected') return 'It was refused: nobody could take it.';
  if (outcome === 'failed') return `It got no answer in ${time(took)}.`;
  const cause = late ? `Its prediction${own ? ` from instance ${own.instance}` : ''} was late after ${time(late.after_us)}` : 'Its prediction was late';
  const gain = alone !== null && alone > took ? `, ${time(alone - took)} sooner than its own prediction, which ${came}` : `; its own prediction ${came}`;
  return `${cause}, so ${OUTCOMES[outcome]} answered it after ${time(took)}${gain}.`;
}

const SAID = {
  arrived: () => 'It arrived.',
  queued: (entry) => `It had to wait: ${entry.waiting} were before it.`,
  given: (entry) => `Instance ${entry.instance} got it.`,
  hedged: (entry) => `Instance ${entry.instance} got it too, as a hedge.`,
  retried: (entry) => `Instance ${entry.instance} got it again.`,
  grouped: (entry) => `It joined a coding group of ${entry.k}, as member ${entry.slot + 1}.`,
  parity_given: (entry) => `Instance ${entry.instance} got the group's parity.`,
  parity_in: (entry) => `The parity was in, from instance ${entry.instance}.`,
  stand_in_given: (entry) => `Instance ${entry.instance} began its stand-in${entry.urgency === 'late' ? ', before all else' : ', as it was idle'}.`,
  stand_in_in: (entry) => `The stand-in's answer was in${entry.confidence === undefined ? '' : `, ${share(entry.confidence)} sure`}.`,
  backup_given: (entry) => `Instance ${entry.instance} got it for the backup model.`,
  backup_in: () => 'The backup model answered.',
  late: (entry) => `It was late, after ${time(entry.after_us)}.`,
  held_back: (entry) => `The approximate answer was held back until ${time(entry.until_us)}, in favour of the prediction.`,
  decoded: (entry) => `Its prediction was decoded from the others of its group${entry.confidence === null ? '' : `, ${share(entry.confidence)} sure`}.`,
  failed: (entry) => `Instance ${entry.instance} failed it: ${entry.text}.`,
  answered: (entry) => `It was answered by ${OUTCOMES[entry.outcome] ?? entry.outcome}${entry.text ? `: ${entry.text}` : ''}.`,
  prediction_in: (entry) => `Its own prediction came, from instance ${entry.instance}${entry.agrees === true ? ': the same answer' : entry.agrees === false ? ': another answer' : ''}.`,
  more: () => 'More happened than is kept.',
};

export function steps(query) {
  return query.timeline.map((entry) => ({ at: time(entry.at_us), text: SAID[entry.what]?.(entry) ?? entry.what, mark: entry.what === 'answered' }));
}

const [WIDTH, LEFT, ROW, TOP] = [720, 152, 26, 22];

export function picture(query) {
  const rows = jobs(query);
  const end = Math.max(query.took_us, ...query.timeline.map((entry) => entry.at_us)) * 1.04;
  const x = linear([0, end], [LEFT, WIDTH - 20]);
  const floor = TOP + rows.length * ROW;
  const mark = (us, name, kind, side = 'start') => [s('line', { class: kind, x1: x.at(us), x2: x.at(us), y1: TOP - 6, y2: floor }),
    s('text', { class: kind, x: x.at(us) + (side === 'start' ? 4 : -4), y: TOP - 9, 'text-anchor': side }, name)];
  const bars = rows.flatMap((job, at) => {
    const y = TOP + at * ROW + 4;
    const to = job.to ?? end;
    return [s('text', { x: LEFT - 10, y: y + 13, 'text-anchor': 'end' }, `${job.name}, instance ${job.instance}`),
      s('rect', { class: `job ${job.kind}${job.to === null ? ' open' : ''}`, x: x.at(job.from), y, width: Math.max(2, x.at(to) - x.at(job.from)), height: ROW - 8, rx: 3 }),
      job.to === null ? s('text', { class: 'never', x: x.at(to) - 6, y: y + 13, 'text-anchor': 'end' }, 'has not ended') : null];
  });
  const late = query.timeline.find((entry) => entry.what === 'late');
  const near = late && x.at(query.took_us) - x.at(late.at_us) < 150;
  const right = x.at(query.took_us) > WIDTH - 150;
  return s('svg', { viewBox: `0 0 ${WIDTH} ${floor + 22}`, role: 'img', 'aria-label': why(query), class: 'timeline' },
    ...bars.filter(Boolean), ...(late ? mark(late.at_us, 'late', 'late', near || right ? 'end' : 'start') : []), ...mark(query.took_us, `answered, ${time(query.took_us)}`, 'answered', right && !near ? 'end' : right ? 'end' : 'start'),
    s('text', { x: LEFT, y: floor + 16, 'text-anchor': 'start' }, '0'), s('text', { x: WIDTH - 20, y: floor + 16, 'text-anchor': 'end' }, time(end / 1.04)));
}

export function told(query) {
  return [h('p', { class: 'lead' }, why(query)), h('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Timeline' }, picture(query)),
    h('ol', { class: 'steps' }, steps(query).map(({ at, text, mark }) => h('li', { 'data-mark': mark ? 'yes' : null }, h('span', { class: 'at' }, at), h('span', {}, text))))];
}
