// The sentence at the top: the effect of redundancy for this model, or what is wrong. It claims no more than the queries support,
// and says so if a hedge would be as good.

import { NAMES } from './histogram.js';
import { cordon } from './nodes.js';
import { beside, count, list, many, share, time } from './words.js';

const RESCUERS = { 'stand-in': 'stand-ins', reconstructed: 'reconstructions', hedged: 'hedges', backup: 'the backup model', default: 'default answers' };
/** Shares below this are not mentioned. */
const RARE = 0.0005;
/** Two tails within this factor count as equal. */
const SAME = 1.1;

/** `{ tone, text, more }`: tone is `good`, `bad`, `warn` or `none`; more are secondary sentences. */
export function verdict(model, summary) {
  const { latest, answered } = summary;
  const none = (text, more = []) => ({ tone: 'none', text, more });
  if (!latest) return none(`No data of ${model.name} yet.`);
  const [, , , usable, members] = latest.queue;
  if (!usable) {
    const more = members ? [`None of ${many(members, 'instance')} accepts work.`] : [];
    return { tone: 'bad', text: `Outage: no instance serves ${model.name}. Every request fails.`, more };
  }
  const asked = answered + summary.lost;
  if (!asked) return none('No queries in the last minutes.');
  if (summary.lost / asked > 0.001) {
    return { tone: 'bad', text: `${share(summary.lost / asked)} of queries fail: ${cause(summary.rejections)}.`, more: [effect(model, summary).text] };
  }
  return effect(model, summary);
}

/** Effect of redundancy. */
function effect(model, summary) {
  const { answered, tail, of, p50, hedge } = summary;
  if (!tail) return { tone: 'none', text: `${many(answered, 'query')} so far: too few for a tail.`, more: [] };
  const name = NAMES.get(tail);
  const is = summary.at(tail);
  const without = summary.without(tail);
  const rescuers = Object.entries(RESCUERS).filter(([outcome]) => of[outcome] / answered >= RARE).sort((a, b) => of[b[0]] - of[a[0]]);
  const policy = model.in_force;
  if (!rescuers.length) {
    const text = `${name} is ${time(is)}, ${(is / p50).toFixed(1)} times the median.`;
    if (policy === 'none' || policy === 'equal') {
      const more = hedge && is > hedge * 1.25 ? [`Nothing hides slow instances: hedges would reach about ${time(hedge)}.`] : ['Nothing hides slow instances.'];
      return { tone: more[0].includes('would') ? 'warn' : 'good', text, more };
    }
    return { tone: 'good', text: `All is well: ${text}`, more: is <= (hedge ?? 0) * SAME && policy !== 'hedge' ? [enough(hedge)] : [] };
  }
  const said = rescuers.map(([outcome, word], at) => `${word} ${at ? '' : `answer${word.startsWith('the') ? 's' : ''} `}${share(of[outcome] / answered)}${at ? '' : ' of queries'}`);
  const who = sentence(list(said));
  const more = [];
  let text = `${who}; ${name} is ${time(is)}`;
  if (without === null || without === Infinity) {
    text += '.';
    if (without) more.push(`${count(summary.never)} predictions never came, so what ${name} would be without them is not known.`);
  } else if (without <= is * SAME) text += ', and about the same without them.';
  else text += `, ${beside(without, is)} without them.`;
  if (policy !== 'hedge' && hedge) {
    more.push(hedge <= is * SAME ? enough(hedge) : `Hedges alone would reach about ${time(hedge)}.`);
  }
  return { tone: 'good', text, more };
}

function enough(hedge) {
  return `A hedge would be enough here: it reaches about ${time(hedge)}.`;
}

const CAUSES = { queue_full: 'the queue is full', overload: 'more queries wait than can be answered in time', no_instance: 'no instance serves the model', bad_query: 'instances reject them',
  deadline: 'their deadline expires', failed: 'instances fail them' };

function cause(rejections) {
  const most = Object.entries(rejections).sort((a, b) => b[1] - a[1])[0];
  return most?.[1] ? CAUSES[most[0]] ?? most[0] : 'no reason is given';
}

function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}

/** Further notes for the operator: `{ tone, text, to }`, where `to` is the part of the page that shows it. */
export function notes(model, summary, nodes, rows) {
  const { latest } = summary;
  const said = [];
  const note = (tone, text, to) => said.push({ tone, text, to });
  if (model.problem) note('warn', `The policy ${model.policy} is not in effect: ${model.problem}.`, 'controls');
  for (const node of nodes.filter((node) => node.slow)) note('bad', cordon(node), 'nodes');
  const out = rows.filter((row) => row.state === 'ejected' && row.reason !== 'order');
  if (out.length) note('warn', `${many(out.length, 'instance')} ejected: ${list(out.slice(0, 5).map((row) => `${row.number}`))}${out.length > 5 ? ' and more' : ''}.`, 'instances');
  const lost = rows.filter((row) => row.state === 'connecting' || row.state === 'refused');
  if (lost.length) note('warn', `${many(lost.length, 'instance')} not connected.`, 'instances');
  if (latest) {
    const [waiting, , , , , slots] = latest.queue;
    if (waiting > Math.max(1, slots)) note('warn', `${many(waiting, 'query')} wait: more than a job per slot, so nothing is hedged or ejected.`, 'queue');
    if (latest.outage) note('bad', 'No instance with the model answers: its stand-in does.', 'instances');
    if (latest.withheld) note('bad', `Stand-ins agree with ${share(latest.agreement)} of predictions only: their answers are withheld.`, 'savings');
    const [given, most] = latest.approximate ?? [0, 0];
    if (most && given >= most * 0.9) note('warn', `Approximate answers are at ${share(given / most)} of their bound: they are delayed for longer.`, 'savings');
  }
  if (summary.counts.hedges_refused > 0) note('none', `${count(summary.counts.hedges_refused)} late jobs were not hedged because the budget was spent.`, 'queue');
  return said;
}
