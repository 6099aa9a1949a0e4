// The row axis of the Map: names of families, and brackets of tenants and models beside them. What does not fit is cut.

import { svg } from './dom.js';
import { brief, label } from './maprow.js';

const LINE = 14, TEXT = 12, GAP = 5, TICK = 4;
const pen = document.createElement('canvas').getContext('2d');
const fits = (text, wide) => pen.measureText(text).width <= wide;

/** The lines of a name, broken behind hyphens where there is room, and cut where there is none. */
function lines(name, tall, wide) {
  const out = [''];
  for (const part of name.split(/(?<=-)/)) {
    const last = out.at(-1);
    if (!last || (out.length + 1) * LINE > tall || fits(last + part, wide)) out[out.length - 1] = last + part; else out.push(part);
  }
  return out.map((line) => {
    let n = line.length;
    while (n > 1 && !fits(n < line.length ? `${line.slice(0, n)}…` : line, wide)) n -= 1;
    return n < line.length ? `${line.slice(0, n)}…` : line;
  });
}

const named = (text, at, words) => { const element = svg('text', at, text); element.append(svg('title', {}, words)); return element; };

/** Neighbours of one tenant, or of one model, have one name and one bracket. */
function column(bands, at, width, name, key) {
  const group = svg('g', { class: name }), edge = at + width - GAP, runs = [];
  for (const { data, y, h } of bands) {
    const last = runs.at(-1);
    if (last?.tenant === data.tenant && last.words === data[key]) last.end = y + h; else runs.push({ tenant: data.tenant, words: data[key], y, end: y + h });
  }
  for (const { words, y, end } of runs) {
    group.append(svg('path', { class: 'bracket', d: `M${edge} ${y + 1}h-${TICK}V${end - 1}h${TICK}` }));
    const said = end - y < TEXT ? [] : lines(words, end - y, width - GAP - 2 * TICK);
    said.forEach((line, i) => group.append(named(line, { x: at, y: (y + end) / 2 - (said.length - 1) * (LINE / 2) + 4 + i * LINE }, words)));
  }
  return group;
}

/** Draws the axis beside these bands; the row at `pin` is marked. */
export function drawAxis(host, axis, bands, height, pin) {
  const look = getComputedStyle(host), sans = getComputedStyle(document.body).fontFamily, end = axis.clientWidth, parts = [];
  const [g1, g2] = ['--g1', '--g2'].map((name) => parseFloat(look.getPropertyValue(name)) || 0), x = g1 + g2;
  axis.setAttribute('height', height);
  pen.font = `400 ${TEXT}px ${sans}`;
  let free = -20;
  bands.forEach(({ y, h, data }, i) => {
    if (i === pin) parts.push(svg('rect', { class: 'hot', x: Math.max(0, x - TICK), y, width: end - x, height: Math.max(h, 3) }));
    if (y + h / 2 - free < 13) return;
    free = y + h / 2;
    parts.push(named(brief(data, (words) => fits(words, end - x - GAP)), { x, y: free + 4 }, label(data)));
  });
  if (g2) parts.push(column(bands, g1, g2, 'g2', 'model'));
  pen.font = `600 ${TEXT}px ${sans}`;
  if (g1) parts.push(column(bands, 0, g1, 'g1', 'tenant'));
  axis.replaceChildren(...parts);
}
