// One query from its arrival to its answer and beyond, as a picture of who worked on it and as sentences.

import { linear } from './chart.js';
import { h, s } from './dom.js';
import { share, time } from './words.js';

const JOBS = { given: 'prediction', hedged: 'hedge', retried: 'retry', stand_in_given: 'stand-in', parity_given: 'parity', backup_given: 'backup' };
const ENDS = ['stand_in_in', 'parity_in', 'backup_in', 'prediction_in', 'failed'];
const OUTCOMES = { exact: 'its own prediction', hedged: 'a hedge', reconstructed: 'a reconstruction', 'stand-in': 'a stand-in', backup: 'the backup model',
  default: 'the default answer', rejected: 'a refusal', failed: 'a failure' };

/** Jobs for a query; `to` is `null` for one that has not ended. */
export function jobs({ timeline }) {
  const all = timeline.filter(({ what }) => JOBS[what]).map(({ what, instance, job, at_us }) => ({ kind: what, instance, job, from: at_us, to: null }));
  for (const entry of timeline) {
    // An exact or hedged answer is the end of its own job, too.
    const own = { exact: 'given', hedged: 'hedged' }[entry.outcome];
    const job = all.find((job) => (ENDS.includes(entry.what) ? job.job === entry.job : job.kind === own && job.to === null));
    if (job) job.to = entry.at_us;
  }
  return all;
}

/** Why it was answered as it was. */
export function why({ outcome, took_us: took, alone_us: alone, timeline }) {
  const find = (wanted) => timeline.find(({ what }) => what === wanted);
  const [late, own] = [find('late'), find('given')];
  const came = alone === null ? 'has not come yet' : `came after ${time(alone)}`;
  if (outcome === 'exact') return `Its own prediction answered it after ${time(took)}.`;
  if (outcome === 'rejected') return 'It was refused: nobody could take it.';
  if (outcome === 'failed') return `It got no answer in ${time(took)}.`;
  return `Its prediction${own ? ` from instance ${own.instance}` : ''} was late${late ? ` after ${time(late.after_us)}` : ''}, so ${OUTCOMES[outcome]} answered it after ${time(took)}${
    alone > took ? `, ${time(alone - took)} sooner than the prediction, which ${came}` : `; the prediction ${came}`}.`;
}

const sure = ({ confidence }) => (confidence === undefined || confidence === null ? '' : `, ${share(confidence)} sure`);
const SAID = {
  arrived: () => 'It arrived.',
  queued: ({ waiting }) => `It had to wait: ${waiting} were before it.`,
  given: ({ instance }) => `Instance ${instance} got it.`,
  hedged: ({ instance }) => `Instance ${instance} got it too, as a hedge.`,
  retried: ({ instance }) => `Instance ${instance} got it again.`,
  grouped: ({ k, slot }) => `It joined a coding group of ${k}, as member ${slot + 1}.`,
  parity_given: ({ instance }) => `Instance ${instance} got the group's parity.`,
  parity_in: ({ instance }) => `The parity was in, from instance ${instance}.`,
  stand_in_given: ({ instance, urgency }) => `Instance ${instance} began its stand-in${urgency === 'late' ? ', before all else' : ', as it was idle'}.`,
  stand_in_in: (entry) => `The stand-in's answer was in${sure(entry)}.`,
  backup_given: ({ instance }) => `Instance ${instance} got it for the backup model.`,
  backup_in: () => 'The backup model answered.',
  late: ({ after_us }) => `It was late, after ${time(after_us)}.`,
  held_back: ({ until_us }) => `The approximate answer was held back until ${time(until_us)}, in favour of the prediction.`,
  decoded: (entry) => `Its prediction was decoded from the others of its group${sure(entry)}.`,
  failed: ({ instance, text }) => `Instance ${instance} failed it: ${text}.`,
  answered: ({ outcome, text }) => `It was answered by ${OUTCOMES[outcome] ?? outcome}${text ? `: ${text}` : ''}.`,
  prediction_in: ({ instance, agrees }) => `Its own prediction came, from instance ${instance}${{ true: ': the same answer', false: ': another answer' }[agrees] ?? ''}.`,
  more: () => 'More happened than is kept.',
};

const [WIDTH, LEFT, RIGHT, ROW, TOP] = [720, 152, 700, 26, 22];

function picture(query) {
  const end = Math.max(query.took_us, ...query.timeline.map(({ at_us }) => at_us ?? 0));
  const x = linear([0, end * 1.02], [LEFT, RIGHT]);
  const rows = jobs(query);
  const floor = TOP + rows.length * ROW;
  const text = (at, y, words, anchor, kind) => s('text', { x: at, y, 'text-anchor': anchor, class: kind }, words);
  const late = query.timeline.find(({ what }) => what === 'late');
  const mark = (us, words, kind, anchor) => [s('line', { class: kind, x1: x.at(us), x2: x.at(us), y1: TOP - 6, y2: floor }), text(x.at(us) + (anchor === 'end' ? -4 : 4), TOP - 9, words, anchor, kind)];
  return s('svg', { viewBox: `0 0 ${WIDTH} ${floor + 20}`, role: 'img', 'aria-label': why(query), class: 'timeline' },
    rows.flatMap(({ kind, instance, from, to }, at) => [text(LEFT - 10, TOP + at * ROW + 17, `${JOBS[kind]}, instance ${instance}`, 'end'),
      s('rect', { class: `job ${kind}${to === null ? ' open' : ''}`, x: x.at(from), y: TOP + at * ROW + 4, width: Math.max(2, x.at(to ?? end * 1.02) - x.at(from)), height: ROW - 8, rx: 3 })]),
    late ? mark(late.at_us, 'late', 'late', 'end') : [], mark(query.took_us, `answered, ${time(query.took_us)}`, 'answered', x.at(query.took_us) > RIGHT - 120 && !late ? 'end' : x.at(query.took_us) > RIGHT - 90 ? 'end' : 'start'),
    text(LEFT, floor + 15, '0', 'start'), text(RIGHT, floor + 15, time(end * 1.02), 'end'));
}

/** What there is to show of a query. */
export function told(query) {
  return [h('p.lead', why(query)), h('div.wide', { tabindex: 0, role: 'region', 'aria-label': 'Timeline' }, picture(query)),
    h('ol.steps', query.timeline.map((entry) => h('li', { 'data-mark': entry.what === 'answered' ? 'yes' : null },
      h('span.at', time(entry.at_us)), h('span', SAID[entry.what]?.(entry) ?? entry.what))))];
}
