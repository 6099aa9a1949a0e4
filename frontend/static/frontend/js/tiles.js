// Node tiles, the tier ladder and the number strip. The server drew them; here only what differs is written.

import { $, $$, mark, onSwap, t, write } from './dom.js';
import { iec, ms, number, share, short, significant, unknown } from './format.js';
import { answer, heard, refresh, subscribe } from './live.js';

const TIERS = ['hbm', 'pinned', 'dram', 'ssd', 'remote'];
const away = (node) => node.stale || node.state === 'lost';
const fleet = { nodes: new Map(), ladder: {}, numbers: {} };
let stale = false;

function key(cell, tier, veiled) {
  const part = tier && tier.used != null && tier.capacity ? tier.used / tier.capacity : null;
  const hot = !veiled && (tier?.state === 'high' || tier?.state === 'full');
  cell.classList.toggle('hot', hot);
  const value = $('[data-share]', cell);
  if (part === null || veiled) {
    if (!$('.unk', value)) value.replaceChildren(unknown());
  } else write(value, `${(100 * part).toFixed(0)}${hot ? '▲' : ''}`);
  write($('small', cell), tier && tier.used != null ? iec(tier.used).join(' ') : '');
}

function column(group, tier, veiled) {
  const part = tier && tier.used != null && tier.capacity ? Math.min(1, tier.used / tier.capacity) : 0;
  for (const fill of $$('[data-fill]', group)) {
    mark(fill, 'y', `${(100 - 100 * part).toFixed(1)}%`);
    mark(fill, 'height', `${(100 * part).toFixed(1)}%`);
    fill.toggleAttribute('hidden', (fill.dataset.fill === 'veil') !== veiled);
  }
}

function tile(element, node) {
  const veiled = away(node);
  mark(element, 'data-state', veiled ? 'silent' : null);
  for (const name of TIERS) {
    const tier = node.tiers?.[name];
    const lost = veiled || tier?.state === 'unknown';
    const group = $(`[data-col="${name}"]`, element), cell = $(`[data-key="${name}"]`, element);
    if (group) column(group, tier, lost);
    if (cell) key(cell, tier, lost);
  }
  const lag = $('[data-lag]', element);
  if (lag && !veiled) write(lag, node.lag_ms == null ? t('lag_unknown') : t('lag', { age: ms(node.lag_ms) }));
  if (lag && veiled && node.age_ms != null) write(lag, t('seen', { age: ms(node.age_ms) }));
  write($('[data-blocks]', element), node.blocks == null ? t('dash') : number(node.blocks));
}

function row(element, node) {
  const veiled = away(node);
  mark(element, 'data-state', veiled ? 'silent' : null);
  for (const cell of $$('[data-cell]', element)) {
    const tier = node.tiers?.[cell.dataset.cell];
    const part = tier && tier.used != null && tier.capacity && !veiled ? tier.used / tier.capacity : null;
    if (part === null) { if (!$('.unk', cell)) cell.replaceChildren(unknown()); } else write(cell, (100 * part).toFixed(1));
  }
  write($('[data-cell-lag]', element), veiled || node.lag_ms == null ? t('dash') : ms(node.lag_ms));
  write($('[data-cell-blocks]', element), node.blocks == null ? t('dash') : number(node.blocks));
}

/** One tier's bar and numbers, of the fleet or of a node. */
export function step(element, data) {
  const used = data.used, capacity = data.capacity, last = data.last_known ?? 0;
  const part = (value) => (capacity ? Math.max(0, Math.min(100, (100 * value) / capacity)) : 0);
  for (const fill of $$('[data-fill]', element)) {
    const width = fill.dataset.fill === 'veil' ? part(last) : part(used ?? 0);
    if (fill.dataset.fill === 'veil') mark(fill, 'x', `${part(used ?? 0).toFixed(1)}%`);
    mark(fill, 'width', `${width.toFixed(1)}%`);
  }
  const shown = used == null ? t('dash') : iec(used, capacity ?? used).join(' ');
  write($('[data-used]', element), `${data.complete || used == null ? '' : '≥ '}${shown}`);
  write($('[data-full]', element), used == null || !capacity ? t('dash') : share((used + last) / capacity, 0));
  // A lower bound says so, and one of zero says nothing.
  write($('[data-step-blocks]', element), data.complete || data.blocks ? `${data.complete ? '' : '≥ '}${number(data.blocks)}` : t('dash'));
}

function figures(numbers) {
  const put = (name, value, unit) => {
    const element = $(`[data-num="${name}"]`);
    if (!element) return;
    if (value === null) { if (!$('.unk', element)) element.replaceChildren(unknown()); return; }
    if (!$('small', element)) element.replaceChildren(document.createTextNode(''), document.createElement('small'));
    if (element.firstChild.data !== value) element.firstChild.data = value;
    write($('small', element), unit);
  };
  const rate = (value, unit) => { if (value == null) return [null]; const [n, prefix] = short(value); return [n, `${prefix}${unit}`]; };
  put('hit', numbers.hit_ratio == null ? null : (100 * numbers.hit_ratio).toFixed(1), '%');
  put('saved', numbers.saved_ms_per_s == null ? null : significant(numbers.saved_ms_per_s / 1000), t('per_s_s'));
  put('requests', ...rate(numbers.requests_per_s, t('per_s')));
  put('events', ...rate(numbers.events_per_s, t('per_s')));
  put('evictions', ...rate(numbers.evictions_per_s, t('per_s')));
  const [blocks, prefix] = short(numbers.blocks ?? 0);
  put('blocks', !numbers.blocks && !(numbers.complete && numbers.blocks === 0) ? null : `${numbers.complete ? '' : '≥ '}${blocks}`, prefix);
  heard(typeof numbers.as_of === 'number' ? numbers.as_of : numbers.as_of ? Date.parse(numbers.as_of) / 1000 : 0);
}

function draw(names) {
  for (const name of names) {
    const node = fleet.nodes.get(name);
    for (const element of $$(`[data-node="${CSS.escape(name)}"]`)) {
      // A state word, a new or a lost node changes more than numbers: let the server draw it.
      if (!node || element.dataset.was !== `${node.state}/${node.source_state ?? ''}`) stale = true;
      if (node) (element.matches('tr') ? row : tile)(element, node);
    }
  }
}

function settle() {
  if (!stale) return;
  stale = false;
  refresh();
}

const view = {
  render(snapshot) {
    const before = [...fleet.nodes.keys()].join();
    fleet.nodes = new Map(Object.entries(snapshot.nodes ?? {}));
    const drawn = new Set($$('[data-node]').map((element) => element.dataset.node));
    if (before && before !== [...fleet.nodes.keys()].join()) stale = true;
    if (drawn.size && [...fleet.nodes.keys()].some((name) => !drawn.has(name))) stale = true;
    draw(drawn);
    view.fleet(snapshot.fleet ?? {});
    settle();
  },
  apply(delta) {
    for (const [name, node] of Object.entries(delta.nodes ?? {})) {
      if (node === null) fleet.nodes.delete(name);
      else { if (!fleet.nodes.has(name)) stale = true; fleet.nodes.set(name, node); }
    }
    draw(Object.keys(delta.nodes ?? {}));
    view.fleet(delta.fleet ?? {});
    settle();
  },
  fleet({ ladder, numbers }) {
    for (const [tier, data] of Object.entries(ladder ?? {})) {
      const element = $(`[data-step="${tier}"]`);
      if (element) step(element, data);
    }
    if (numbers) figures(numbers);
  },
  async poll() {
    const tiles = await answer('/api/v1/map/tiles');
    if (tiles) view.render(tiles);
    return tiles !== null;
  },
};

/** Joins the topic of the tiles; called by page modules. */
export function joinTiles() {
  subscribe('tiles', view);
}

// What htmx brought is as old as its query: write the newest numbers over it.
onSwap(() => { draw(fleet.nodes.keys()); stale = false; });
