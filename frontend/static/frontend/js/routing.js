// The tail of decisions as they are recorded: the newest that match the filter, and counters that leave nothing out.
// While somebody reads (pointer or focus in the table) rows stay where they are, and what came meanwhile is counted.

import { $, $$, html, onSwap, root, svg, t, write } from './dom.js';
import { clock, number, unknown } from './format.js';
import { heard, now, refresh, start, subscribe } from './live.js';

const ROWS = 50, FIELDS = ['model', 'node', 'policy', 'answer', 'kept', 'tenant'];
const tail = $('[data-tail]');
const filters = JSON.parse(tail?.dataset.filters ?? '{}');
const answers = JSON.parse(tail?.dataset.words ?? '{}');
const decisions = new Map();
let reading = false, newer = 0, due = 0;

const matches = (one) => FIELDS.every((name) => !filters[name] || one[name] === filters[name]);
const time = (value) => (value == null ? unknown() : t('milliseconds', { n: Math.abs(value) < 9.95 ? value.toFixed(1) : number(value) }));

function status([tone, icon, word]) {
  const mark = svg('svg', { class: 'icon', 'aria-hidden': 'true' });
  mark.append(svg('use', { href: `#i-${icon}` }));
  return html('span', { class: 'status', 'data-tone': tone }, mark, word);
}

function row(id, one) {
  const link = html('a', { href: `${tail.dataset.href}${id}` }, clock(Date.parse(one.at) / 1000));
  const answer = html('td', {}, status(answers[one.answer] ?? ['unknown', 'unknown', one.answer]));
  if (one.code) answer.append(' ', html('span', { class: 'sub mono' }, one.code));
  const node = html('td', {}, one.node || '–');
  if (one.decode_node && one.decode_node !== one.node) node.append(' ', html('span', { class: 'sub' }, `→ ${one.decode_node}`));
  const n = (...parts) => html('td', { class: 'n' }, ...parts);
  return html('tr', { 'data-id': id },
    html('th', { scope: 'row', class: 'nowrap' }, link), html('td', {}, one.tenant), html('td', {}, one.model), answer, node,
    n(`${number(one.overlap_tokens)} `, html('span', { class: 'muted' }, `/ ${number(one.prompt_tokens)}`)),
    n(time(one.predicted_ms)), n(time(one.measured_ms)), n(time(one.regret_ms)),
    html('td', { class: 'mono' }, one.policy ? `${one.policy} ${one.policy_version ?? ''}` : ''));
}

function draw() {
  const body = $('tbody', tail);
  if (!body) { if (decisions.size) refresh(); return; }
  const shown = [...decisions].filter(([, one]) => matches(one)).sort(([a], [b]) => (a < b ? 1 : -1)).slice(0, ROWS);
  const kept = new Map($$('tr', body).map((line) => [line.dataset.id, line]));
  const rest = $$('tr', body).filter((line) => !decisions.has(line.dataset.id));
  body.replaceChildren(...[...shown.map(([id, one]) => row(id, one)), ...rest].slice(0, Math.max(ROWS, kept.size)));
  newer = 0;
  count();
}

function count() {
  const badge = $('[data-newer]', tail);
  badge.hidden = !newer;
  write(badge, newer ? t('newer', { n: number(newer) }) : '');
}

function soon() {
  if (due) return;
  due = setTimeout(() => { due = 0; if (reading) count(); else draw(); }, 1_000);
}

function numbers(all) {
  for (const [name, value] of Object.entries(all ?? {})) write($(`[data-counted="${name}"]`), number(value));
}

function take(news) {
  for (const [id, one] of Object.entries(news.decisions ?? {})) {
    if (one === null) { decisions.delete(id); continue; }
    if (!decisions.has(id) && matches(one)) newer += 1;
    decisions.set(id, one);
  }
  numbers(news.numbers?.all);
  heard(now());
  root.dataset.tailFrames = String(1 + Number(root.dataset.tailFrames ?? 0));
  soon();
}

const view = {
  render(snapshot) { decisions.clear(); take(snapshot); },
  apply: take,
  async poll() { refresh(); },
};

function hold(on) {
  if (reading === on) return;
  reading = on;
  if (!on) draw();
}

onSwap(() => heard(Number($('[data-as-of]')?.dataset.asOf ?? 0)));

if (tail) {
  const table = $('.panel-body', tail);
  table.addEventListener('pointerenter', () => hold(true));
  table.addEventListener('pointerleave', () => hold(table.contains(document.activeElement)));
  table.addEventListener('focusin', () => hold(true));
  table.addEventListener('focusout', (event) => hold(table.contains(event.relatedTarget)));
  subscribe('decisions', view);
}
if ($('[data-live]')) start();
