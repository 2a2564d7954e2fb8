// Simulated words of a frontend about a query: the sentences that `parm ctl query` prints and the page shows.

import { share, time } from '../words.js';

const OUTCOMES = { exact: 'its own prediction', hedged: 'a hedge', reconstructed: 'a reconstruction', 'stand-in': 'a stand-in', backup: 'the backup model',
  default: 'the default answer', rejected: 'a refusal', failed: 'a failure' };

/** Reason for its outcome. */
export function why({ outcome, took_us: took, alone_us: alone, timeline }) {
  const find = (wanted) => timeline.find(({ what }) => what === wanted);
  const [late, own] = [find('late'), find('given')];
  const came = alone === null ? 'has not come yet' : `came after ${time(alone)}`;
  if (outcome === 'exact') return `Its own prediction answered it after ${time(took)}.`;
  if (outcome === 'rejected') return 'It was rejected: no instance could take it.';
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
  failed: ({ instance, error }) => `Instance ${instance} failed it: ${error}.`,
  answered: ({ outcome, error }) => `It was answered by ${OUTCOMES[outcome]}${error ? `: ${error}` : ''}.`,
  prediction_in: ({ instance, agrees }) => `Its own prediction came, from instance ${instance}${{ true: ': the same answer', false: ': another answer' }[agrees] ?? ''}.`,
  more: () => 'More happened than is kept.',
};

/** A query with its words. */
export function worded(query) {
  return { ...query, why: why(query), timeline: query.timeline.map((entry) => ({ ...entry, text: SAID[entry.what](entry) })) };
}
