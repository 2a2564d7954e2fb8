// A simulated admin port: CONTRACT.md, served from a cluster of cluster.mjs. Tests control it; developers run it to look at
// the page:  node frontend/page/test/mock.mjs [cluster|many|hedge|empty|quiet] [port]

import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { Cluster } from './cluster.mjs';
import { worded } from './words.mjs';

const FOLDER = new URL('..', import.meta.url);

const TYPES = { html: 'text/html; charset=utf-8', css: 'text/css; charset=utf-8', js: 'text/javascript; charset=utf-8', svg: 'image/svg+xml' };

/** Files of the page. */
export const FILES = ['style.css', 'icon.svg', 'main.js', 'bands.js', 'chart.js', 'confirm.js', 'controls.js', 'ctl.js', 'dom.js', 'events.js',
  'groups.js', 'histogram.js', 'history.js', 'instances.js', 'key.js', 'nodes.js', 'queries.js', 'queue.js', 'savings.js', 'sound.js', 'stream.js', 'summary.js', 'table.js', 'tiles.js',
  'timeline.js', 'verdict.js', 'words.js'];

/** Headers of every asset. */
export const HEADERS = {
  'content-security-policy': "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
  'x-frame-options': 'DENY', 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer', 'cache-control': 'no-cache',
};

/** Starts one. `key`: required key; `role`: `admin` or `read`; `interval`: ms between frames; `past`: seconds of history. */
export async function start({ scenario = 'cluster', port = 0, key = null, role = 'control', interval = 1000, past = 180, seed = 7 } = {}) {
  const cluster = new Cluster(scenario, seed);
  const mock = { cluster, key, role, calls: [], watchers: new Set(), down: false, past: [] };
  const ring = 300;
  for (let ago = past; ago > 0; ago -= 1) {
    const { instances, ...rest } = cluster.frame(Date.now() - ago * 1000);
    mock.past.push(rest);
  }
  cluster.news.length = 0;

  const tick = () => {
    if (!mock.watchers.size || mock.still) return;
    const frame = cluster.frame();
    const { instances, ...rest } = frame;
    mock.past.push(rest);
    if (mock.past.length > ring) mock.past.shift();
    const lines = [];
    if (cluster.changed.models) lines.push({ models: cluster.names() });
    if (cluster.changed.instances) lines.push({ instances: cluster.members() });
    if (cluster.news.length) lines.push({ events: cluster.news.splice(0) });
    cluster.changed = { models: false, instances: false };
    lines.push({ frame });
    const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
    for (const watcher of mock.watchers) watcher.write(text);
  };

  const stream = (url, response) => {
    const since = Number(url.searchParams.get('since') ?? 0);
    response.writeHead(200, { 'content-type': 'application/x-ndjson', 'cache-control': 'no-store' });
    const say = (line) => response.write(`${JSON.stringify(line)}\n`);
    say({ hello: cluster.hello(mock.role, mock.key ? 'ops' : null, interval) });
    say({ models: cluster.names() });
    say({ instances: cluster.members() });
    say({ events: cluster.events });
    for (const frame of mock.past) if (frame.at > since) say({ past: frame });
    mock.watchers.add(response);
    response.on('close', () => mock.watchers.delete(response));
  };

  const control = async (method, path, body, reply) => {
    const instance = /^\/admin\/v1\/instances\/(\d+)\/(drain|undrain|eject)$/.exec(path);
    const settings = /^\/admin\/v1\/settings\/([^/]+)$/.exec(path);
    const model = settings && cluster.models.find(({ name }) => name === decodeURIComponent(settings[1]));
    if (settings && method === 'GET') return model ? reply(200, { ...model.settings, in_force: {} }) : reply(404, { error: 'unknown model' });
    if (!instance && !(settings && method === 'PATCH')) return reply(404, { error: `unknown path '${path}'` });
    if (mock.role !== 'control') return reply(403, { error: "key 'ops' has the role read, and this wants control: ask whoever runs the server for a key of that role" });
    if (instance) {
      const one = cluster.order(Number(instance[1]), instance[2], 'ops');
      return one ? reply(202, { number: one.number, state: one.state }) : reply(404, { error: 'no such instance' });
    }
    if (!model) return reply(404, { error: 'unknown model' });
    if (body.queue_limit === 0) return reply(400, { error: 'invalid settings: invalid value: integer `0`, expected a nonzero u32' });
    cluster.change(model, body, 'ops');
    return reply(200, model.settings);
  };

  const queries = (url, reply) => {
    const one = /^\/admin\/v1\/queries\/([0-9a-f]+)$/.exec(url.pathname);
    if (one) {
      const found = cluster.queries.find(({ id }) => id === one[1]);
      return found ? reply(200, worded(found)) : reply(404, { error: `unknown query '${one[1]}': it was not kept or is too old` });
    }
    const want = (name) => url.searchParams.get(name);
    let found = cluster.queries.filter((query) => (!want('model') || query.model === want('model'))
      && (!want('outcome') || query.outcome === want('outcome')) && (!want('request') || query.request === want('request')));
    found = want('slowest') === 'true' ? [...found].sort((a, b) => b.took_us - a.took_us) : [...found].reverse();
    const limit = Number(want('limit') ?? 50);
    return reply(200, { kept: cluster.queries.length, since: cluster.queries[0]?.at ?? Date.now(),
      queries: found.slice(0, limit).map(({ timeline, deadline_us, ...rest }) => rest) });
  };

  const serve = async (request, response) => {
    const url = new URL(request.url, 'http://mock');
    let body = '';
    for await (const chunk of request) body += chunk;
    const parsed = body ? JSON.parse(body) : null;
    mock.calls.push({ method: request.method, path: url.pathname + url.search, body: parsed, authorization: request.headers.authorization ?? null });
    const reply = (status, value) => response.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' }).end(JSON.stringify(value));
    if (!url.pathname.startsWith('/admin/')) {
      const name = url.pathname === '/' ? 'index.html' : url.pathname.replace(/^\/page\//, '');
      if (url.pathname !== '/' && !FILES.includes(name)) return response.writeHead(404).end();
      const text = await readFile(new URL(name, FOLDER));
      return response.writeHead(200, { ...HEADERS, 'content-type': TYPES[name.split('.').pop()] }).end(text);
    }
    if (mock.down) return request.socket.destroy();
    if (mock.key && request.headers.authorization !== `Bearer ${mock.key}`) return reply(401, { error: 'send the key as authorization: Bearer KEY' });
    if (url.pathname === '/admin/v1/stream') return stream(url, response);
    if (url.pathname.startsWith('/admin/v1/queries')) return queries(url, reply);
    return control(request.method, url.pathname, parsed, reply);
  };

  const server = createServer((request, response) => serve(request, response).catch((error) => response.destroy(error)));
  await new Promise((listens) => server.listen(port, '127.0.0.1', listens));
  const timer = setInterval(tick, interval);
  mock.url = `http://127.0.0.1:${server.address().port}`;
  /** Closes connections, and refuses new ones until it is back. */
  mock.cut = () => { mock.down = true; for (const watcher of mock.watchers) watcher.destroy(); };
  mock.back = () => { mock.down = false; };
  mock.tick = tick;
  mock.close = () => { clearInterval(timer); server.closeAllConnections(); return new Promise((closed) => server.close(closed)); };
  return mock;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [scenario = 'cluster', port = '8003'] = process.argv.slice(2);
  const { url } = await start({ scenario, port: Number(port) });
  process.stdout.write(`${url}\n`);
}
