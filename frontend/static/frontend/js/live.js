// One socket for the page: snapshot first, then contiguous deltas. A hole in the numbers asks for a new snapshot.
// Without the socket the page says so and asks every 10 s; while paused nothing moves and nothing is lost.

import { $, $$, announce, mark, root, t, write } from './dom.js';
import { duration } from './format.js';

const POLL_MS = 10_000, QUIET_MS = 5_000, BACKOFF_MS = [500, 1_000, 2_000, 4_000, 8_000, 15_000];
const topics = new Map();
const chip = $('[data-live]');
const banner = $('[data-live-banner]');
const skew = Date.now() - Number(document.body.dataset.now || Date.now() / 1000) * 1000;
let socket = null, tries = 0, lostAt = 0, paused = false, asOf = 0, polledAt = 0, timer = 0, skipped = 0, refreshing = 0, refreshedAt = 0;

/** Server time in seconds, as far as this page knows it. */
export const now = () => (Date.now() - skew) / 1000;

/** A page module takes part in a topic: `render(snapshot)`, `apply(delta)`, and `poll()` where the socket is away. */
export function subscribe(topic, view) {
  topics.set(topic, { view, seq: null });
  if (socket?.readyState === WebSocket.OPEN) ask([topic]);
}

/** Leaves a topic. */
export function unsubscribe(topic) {
  topics.delete(topic);
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ unsubscribe: [topic] }));
}

/** The newest time a frame spoke of. */
export function heard(seconds) {
  if (seconds > asOf) asOf = seconds;
}

function ask(names, resume = {}) {
  socket.send(JSON.stringify({ subscribe: names, resume }));
}

function open() {
  if (paused || !topics.size) return;
  socket = new WebSocket(`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/ws/live`);
  socket.onopen = () => {
    tries = 0;
    const resume = {};
    for (const [name, { seq }] of topics) if (seq !== null) resume[name] = seq;
    ask([...topics.keys()], resume);
  };
  socket.onmessage = (event) => take(JSON.parse(event.data));
  socket.onclose = (event) => {
    socket = null;
    if (paused) return;
    if (event.code === 4401 || event.code === 4403) { location.reload(); return; }
    if (!lostAt) lostAt = Date.now();
    const wait = BACKOFF_MS[Math.min(tries, BACKOFF_MS.length - 1)] * (0.75 + Math.random() / 2);
    tries += 1;
    clearTimeout(timer);
    timer = setTimeout(open, wait);
  };
}

function take(frame) {
  const topic = topics.get(frame.topic);
  if (!topic || paused) return;
  const started = performance.now();
  if (frame.snapshot) {
    topic.seq = frame.seq;
    skipped += frame.skipped ?? 0;
    topic.view.render(frame.snapshot, frame);
    arrived();
  } else if (frame.delta && topic.seq !== null && frame.seq === topic.seq + 1) {
    topic.seq = frame.seq;
    topic.view.apply(frame.delta, frame);
    arrived();
  } else if (frame.delta && (topic.seq === null || frame.seq > topic.seq)) {
    topic.seq = null;
    ask([frame.topic]);
  }
  root.dataset.frameMs = (performance.now() - started).toFixed(2);
}

function arrived() {
  root.dataset.socket = 'on';
  polledAt = 0;
  if (!lostAt) return;
  lostAt = 0;
  announce(t('live_back'));
}

/** Asks htmx parts (`hx-trigger="kvc:refresh from:body"`) to come again; at most once in two seconds. */
export function refresh() {
  if (refreshing) return;
  refreshing = setTimeout(() => { refreshing = 0; document.body.dispatchEvent(new Event('kvc:refresh')); }, Math.max(0, refreshedAt + 2_000 - Date.now()));
  refreshedAt = Date.now();
}

function poll() {
  polledAt = Date.now();
  for (const { view } of topics.values()) view.poll?.();
}

function tick() {
  const away = lostAt && !paused ? Date.now() - lostAt : 0;
  if (banner) {
    banner.hidden = away < QUIET_MS;
    if (!banner.hidden) write($('[data-live-away]', banner), t('live_lost', { age: duration(away / 1000) }));
  }
  if (away > QUIET_MS && Date.now() - polledAt > POLL_MS) poll();
  if (!chip) return;
  const state = paused ? 'paused' : away > QUIET_MS ? 'away' : root.dataset.socket === 'on' ? 'live' : 'wait';
  mark(chip, 'data-state', state);
  write($('[data-live-word]', chip), t(`live_${state}`));
  const lag = $('[data-live-lag]', chip);
  if (!paused) write(lag, asOf && state === 'live' ? t('behind', { age: duration(now() - asOf) }) : '');
  if (skipped) chip.title = t('skipped', { n: skipped });
}

function toggle() {
  paused = !paused;
  chip.setAttribute('aria-pressed', String(paused));
  if (paused) {
    clearTimeout(timer);
    socket?.close();
    lostAt = 0;
    write($('[data-live-lag]', chip), t('paused_at', { time: new Date(Date.now() - skew).toISOString().slice(11, 19) }));
  } else {
    for (const topic of topics.values()) topic.seq = null;
    tries = 0;
    open();
    refresh();
  }
  announce(t(paused ? 'live_paused_said' : 'live_back'));
  tick();
}

chip?.addEventListener('click', toggle);
for (const button of $$('[data-live-now]')) button.addEventListener('click', () => { tries = 0; clearTimeout(timer); socket?.close(); open(); poll(); });
setInterval(tick, 1_000);
setInterval(() => { if (!paused && !document.hidden) refresh(); }, POLL_MS);
addEventListener('pageshow', (event) => { if (event.persisted && !socket) open(); });
addEventListener('pagehide', () => { clearTimeout(timer); socket?.close(); });

/** Called once by the page's main module, after all topics are known. */
export function start() {
  open();
  tick();
}
