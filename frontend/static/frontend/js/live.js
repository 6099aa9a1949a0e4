// One socket for the page: snapshot first, then contiguous deltas. A hole in the numbers asks for a new snapshot.
// Without the socket the page says so and asks every 10 s; while paused nothing moves and nothing is lost.
// What is older than the page promises is never shown as live: the badge says since when, and all figures are veiled.

import { $, $$, announce, mark, root, t, write } from './dom.js';
import { now } from './clock.js';
import { clock, duration } from './format.js';

export { now };

const POLL_MS = 10_000, ANSWER_MS = 8_000, QUIET_MS = 5_000, BACKOFF_MS = [500, 1_000, 2_000, 4_000, 8_000, 15_000];
const topics = new Map();
const chip = $('[data-live]');
const banner = $('[data-live-banner]');
const promise = Number(chip?.dataset.promise || 15);
let socket = null, tries = 0, lostAt = 0, paused = false, asOf = Number(chip?.dataset.asOf || 0), timer = 0, skipped = 0;
let refreshing = 0, refreshedAt = 0, polledAt = 0, answeredAt = 0, mute = false;

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

/** When the writer last showed life, as the newest answer has it; 0 = never. Nothing else makes figures fresh. */
export function heard(seconds) {
  asOf = seconds;
  tick();
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
    if (event.code === 4401 || event.code === 4403) over(); else again();
  };
}

function again() {
  if (!lostAt) lostAt = Date.now();
  const wait = BACKOFF_MS[Math.min(tries, BACKOFF_MS.length - 1)] * (0.75 + Math.random() / 2);
  tries += 1;
  clearTimeout(timer);
  timer = setTimeout(open, wait);
}

/** The session is over, or nobody can tell whether it is: the page is left only where the console answers. */
async function over() {
  const got = await fetch(location, { method: 'HEAD', redirect: 'manual', signal: AbortSignal.timeout(ANSWER_MS) }).catch(() => null);
  if (got && got.status < 500) location.reload(); else again();
}

function take(frame) {
  const topic = topics.get(frame.topic);
  if (!topic || paused) return;
  const started = performance.now();
  if (frame.snapshot) {
    topic.seq = frame.seq;
    skipped += frame.skipped ?? 0;
    arrived();
    topic.view.render(frame.snapshot, frame);
  } else if (frame.delta && topic.seq !== null && frame.seq === topic.seq + 1) {
    topic.seq = frame.seq;
    arrived();
    topic.view.apply(frame.delta, frame);
  } else if (frame.delta && (topic.seq === null || frame.seq > topic.seq)) {
    topic.seq = null;
    ask([frame.topic]);
  }
  root.dataset.frameMs = (performance.now() - started).toFixed(2);
}

function arrived() {
  chip?.toggleAttribute('data-beat');
  root.dataset.socket = 'on';
  lostAt = 0;
  mute = false;
}

/** Asks htmx parts (`hx-trigger="kvc:refresh from:body"`) to come again; at most once in two seconds. */
export function refresh() {
  if (refreshing) return;
  refreshing = setTimeout(() => { refreshing = 0; document.body.dispatchEvent(new Event('kvc:refresh')); }, Math.max(0, refreshedAt + 2_000 - Date.now()));
  refreshedAt = Date.now();
}

/** What a page module asks itself while the socket is away or says nothing; null where nobody answers in time. */
export async function answer(path) {
  const got = await fetch(path, { headers: { Accept: 'application/json' }, signal: AbortSignal.timeout(ANSWER_MS) }).catch(() => null);
  return got?.ok ? got.json().catch(() => null) : null;
}

/** Asks by HTTP. An answer fresher than all that an open socket brought means that the socket is dead without a word. */
async function poll() {
  polledAt = Date.now();
  const before = asOf;
  const answers = await Promise.all([...topics.values()].map(({ view }) => view.poll?.()));
  mute = !answers.includes(true);
  if (mute) return;
  answeredAt = Date.now();
  tick();
  if (socket?.readyState === WebSocket.OPEN && asOf - before > promise) socket.close();
}

function tick() {
  const lost = lostAt && !paused && Date.now() - lostAt > QUIET_MS;
  const late = !paused && now() - asOf > promise;
  const old = paused ? 'old' in root.dataset : late || (lost && Date.now() - answeredAt > POLL_MS + QUIET_MS);
  if ((lost || late) && Date.now() - polledAt > POLL_MS) poll();
  if (old !== 'old' in root.dataset) {
    if (old) root.dataset.old = '';
    else { delete root.dataset.old; refresh(); if (!lost) announce(t('live_back')); }
  }
  if (chip) say(paused ? 'paused' : lost ? 'away' : late ? 'old' : root.dataset.socket === 'on' ? 'live' : 'wait');
}

/** Badge and banner: the state's word, since when, and what that means for the figures. */
function say(state) {
  const since = state === 'away' ? lostAt : asOf * 1000 + Date.now() - now() * 1000;
  const seconds = (Date.now() - since) / 1000, age = duration(seconds);
  const time = clock(now() - seconds, seconds > 43_200);
  mark(chip, 'data-state', state);
  write($('[data-live-word]', chip), t(`live_${state}`));
  const known = state === 'away' || asOf > 0, silent = state === 'away' || state === 'old';
  if (state !== 'paused') write($('[data-live-lag]', chip), silent ? (known ? t('since', { time }) : '') : state === 'live' ? t('behind', { age }) : '');
  if (skipped) chip.title = t('skipped', { n: skipped });
  if (!banner) return;
  banner.hidden = !silent;
  if (!silent) return;
  const why = state === 'away' ? ('old' in root.dataset ? 'mute' : 'lost') : mute ? 'mute' : known ? 'writer' : 'never';
  write($('[data-live-away]', banner), t(`live_said_${why}`, { time }));
  write($('[data-live-age]', banner), known ? t('ago', { age }) : '');
}

function toggle() {
  paused = !paused;
  chip.setAttribute('aria-pressed', String(paused));
  if (paused) {
    [timer, refreshing].forEach(clearTimeout);
    socket?.close();
    lostAt = refreshing = 0;
    write($('[data-live-lag]', chip), t('paused_at', { time: clock(now()) }));
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
document.addEventListener('visibilitychange', tick);

/** Called once by the page's main module, after all topics are known. */
export function start() {
  open();
  tick();
}
