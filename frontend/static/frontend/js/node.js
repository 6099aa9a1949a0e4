// A node's page: its tiers, sources and history as they happen. Words that change are drawn by the server.

import { $, root, write } from './dom.js';
import { fills } from './charts.js';
import { ms, number } from './format.js';
import { refresh, start, subscribe } from './live.js';
import { joinTiles, step } from './tiles.js';

const page = $('[data-node-page]');
const name = page?.dataset.nodePage;

function source(element, data) {
  write($('[data-src-seq]', element), number(data.seq));
  if (data.lag_ms != null) write($('[data-src-lag]', element), ms(data.lag_ms));
  if (data.age_ms != null) write($('[data-src-age]', element), ms(data.age_ms));
}

function draw(node) {
  for (const [tier, data] of Object.entries(node.tiers ?? {})) {
    const element = $(`[data-tier-step="${tier}"]`);
    if (element && data) step(element, { ...data, complete: data.state !== 'unknown' });
  }
  let news = page.dataset.was !== `${node.state}/${node.source_state ?? ''}`;
  const sources = Array.isArray(node.sources) ? node.sources : Object.values(node.sources ?? {});
  for (const data of sources) {
    const element = $(`[data-source="${data.id}"]`);
    if (!element) { news = true; continue; }
    if (element.dataset.was !== `${data.state}/${data.reason}`) news = true;
    source(element, data);
  }
  fills?.add(node.tiers ?? {});
  root.dataset.nodeFrames = String(1 + Number(root.dataset.nodeFrames ?? 0));
  if (news) refresh();
}

const view = {
  node: null,
  render(snapshot) { view.apply(snapshot); },
  apply(delta) {
    const news = delta.node ?? delta.nodes ?? {};
    if (news[name]) draw(news[name]);
    else if (news[name] === null) refresh();
  },
  async poll() { refresh(); },
};

if (page) {
  subscribe(`node:${name}`, view);
  joinTiles();
  start();
}
