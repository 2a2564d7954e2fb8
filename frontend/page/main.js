// The page: one stream, and the parts that draw its data.

import { h, keyed, say, set, show } from './dom.js';
import { Bands } from './bands.js';
import { Confirm } from './confirm.js';
import { Controls } from './controls.js';
import { Events } from './events.js';
import { Groups } from './groups.js';
import { History } from './history.js';
import { Instances } from './instances.js';
import { KeyDialog, call, forget, key } from './key.js';
import { Nodes, nodes } from './nodes.js';
import { Queries } from './queries.js';
import { Queue } from './queue.js';
import { Savings } from './savings.js';
import { Stream } from './stream.js';
import { summary } from './summary.js';
import { Tiles } from './tiles.js';
import { notes, verdict } from './verdict.js';
import { clock, many, span } from './words.js';

/** Figures cover the last minute, or everything known if that has too few queries for a tail. */
const RECENT = 60_000;
const ENOUGH = 5000;

const place = (id) => document.getElementById(id);
const body = (id) => place(id).querySelector('.body');

const history = new History();
const confirm = new Confirm();
const view = { model: null, may: true, state: { is: 'connecting' }, lost: null };

const parts = {
  bands: new Bands(body('latency')), savings: new Savings(body('savings')), groups: new Groups(body('groups')), queue: new Queue(body('queue')),
  nodes: new Nodes(body('nodes'), order), instances: new Instances(body('instances'), order), events: new Events(body('events')), queries: new Queries(body('queries')),
  controls: new Controls(body('controls'), confirm, refused), tiles: new Tiles(place('tiles')),
};

const stream = new Stream({
  key, since: () => history.last,
  onLine: (line) => { const kind = history.take(line); if (kind === 'hello') view.may = line.hello.role === 'control'; if (kind !== 'past') soon(); },
  onState: (state) => { view.state = state; if (state.is === 'locked') { forget(); dialog.ask(state.why); } connection(); },
});
const dialog = new KeyDialog(() => stream.start());

/** Sends confirmed orders to instances, one after the other. */
function order(name, numbers, { title, text, yes, line }) {
  confirm.ask({
    title, yes, line, body: [h('p', text)],
    act: async () => {
      for (const number of numbers) await call('POST', `/admin/v1/instances/${number}/${name}`).catch(refused);
    },
  });
}

/** A control was rejected: this key may not change anything. */
function refused(error) {
  if (error.status === 403) {
    view.may = false;
    soon();
  }
  throw error;
}

/** Draws once for all lines that arrived together. */
function soon() {
  if (view.waits) return;
  view.waits = true;
  requestAnimationFrame(() => { view.waits = false; draw(); });
}

function draw() {
  const { hello, models } = history;
  if (!hello) return;
  say(place('version'), `${hello.version}, up ${span(Math.max(hello.at, history.last) - hello.started_at)}`);
  show(place('forget'), key() !== null);
  chooser(models);
  const model = models.find(({ name, version }) => `${name} ${version}` === view.model) ?? models[0];
  show(place('parts'), true);
  for (const part of ['model-parts', 'controls']) show(place(part), model !== undefined);
  const list = nodes(history.rows, hello.bounds.node_slow_factor);
  if (model) drawModel(model, hello, list);
  else sentence({ tone: 'none', text: 'No model is served yet.', more: ['Once a worker with a model joins, it is shown here.'] }, []);
  parts.nodes.draw(list, view.may);
  show(place('nodes'), history.rows.length > 0);
  parts.instances.draw(history.rows, history.series, view.may);
  parts.events.draw(history);
}

function drawModel(model, hello, list) {
  const all = history.parts(model.m, hello.history_s * 1000);
  const minute = history.parts(model.m, RECENT);
  const recent = summary(minute, hello);
  const now = recent.answered >= ENOUGH ? recent : summary(all, hello);
  const rows = history.rows.filter((row) => !row.models || row.models.includes(model.m));
  sentence(verdict(model, now), notes(model, now, list, rows));
  say(place('stretch'), `${model.in_force}, ${now === recent ? 'the last minute' : `the last ${span(all.length * hello.interval_ms)}`}`);
  parts.tiles.draw(all, now, minute);
  parts.bands.draw(history, model.m);
  parts.savings.draw(model, now);
  show(place('groups'), parts.groups.draw(now.latest?.groups, now));
  parts.controls.draw(model, hello.policies, view.may);
  parts.queue.draw(now, parts.controls.settings);
  parts.queries.draw(model, hello.outcomes);
}

function sentence({ tone, text, more }, said) {
  set(place('verdict'), 'data-tone', tone);
  say(place('sentence'), text);
  say(place('more'), more.join(' '));
  show(place('more'), more.length > 0);
  keyed(place('notes'), said, (_, at) => at, () => h('li', h('a')), (li, { tone, text, to }) => {
    set(li, 'data-tone', tone);
    set(li.firstChild, 'href', `#${to}`);
    say(li.firstChild, text);
  });
}

function chooser(models) {
  const select = place('model');
  const names = models.map(({ name, version }) => ({ key: `${name} ${version}`, text: models.filter((other) => other.name === name).length > 1 ? `${name}, version ${version}` : name }));
  keyed(select, names, ({ key }) => key, ({ key }) => h('option', { value: key }), (option, { text }) => say(option, text));
  show(place('model-choice'), models.length > 0);
  if (!names.some(({ key }) => key === view.model)) view.model = names[0]?.key ?? null;
  if (view.model && select.value !== view.model) select.value = view.model;
}

/** State of the connection, in the header; over the page when its data becomes old. */
function connection() {
  const { is, until, why } = view.state;
  const wait = until ? Math.max(0, Math.ceil((until - Date.now()) / 1000)) : 0;
  const words = { connecting: 'connecting', live: 'live', lost: 'connection lost', locked: 'a key is needed', paused: 'paused' };
  say(place('state'), words[is]);
  set(place('state'), 'data-is', is);
  say(place('clock'), history.last ? clock(history.last) : '');
  const { dropped, strange } = history;
  say(place('dropped'), [dropped && `${many(dropped, 'frame')} dropped`, strange && `${many(strange, 'line')} not understood`].filter(Boolean).join(', '));
  // Shown until it is back, not only between two attempts.
  if (is !== 'connecting') view.lost = is === 'lost' ? why : null;
  show(place('lost'), view.lost !== null);
  if (view.lost === null) return;
  say(place('lost-why'), `Connection lost: ${view.lost}.${history.last ? ` Shown data is of ${clock(history.last)}.` : ''}`);
  say(place('lost-until'), wait ? `Next try in ${wait} s.` : 'Trying now.');
}

place('model').addEventListener('change', (event) => { view.model = event.target.value; draw(); });
place('retry').addEventListener('click', () => stream.start());
place('forget').addEventListener('click', () => { forget(); location.reload(); });
document.addEventListener('visibilitychange', () => (document.hidden ? stream.pause() : stream.start()));
setInterval(connection, 1000);
if (document.hidden) connection();
else stream.start();
