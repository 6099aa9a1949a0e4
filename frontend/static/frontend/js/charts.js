// Plotly with the console's look: colours from the tokens, no mode bar, redrawn when the theme changes.
// Its style sheet is a static file (plotly.css), so that it needs none of its own under a strict policy.

import { $, $$, root, t } from './dom.js';
import { now } from './live.js';
import { tokens } from './theme.js';

const DASH = { hbm: 'solid', pinned: 'dot', dram: 'dash', ssd: 'dashdot', remote: 'longdash' };
const NAMES = ['text', 'muted', 'line', 'line-soft', 'line-hard', 'card', ...Object.keys(DASH).map((tier) => `tier-${tier}`)];
const EVERY_S = 10, KEEP_S = 3_600, TOP = 102;
const iso = (seconds) => new Date(seconds * 1000).toISOString();

/** The times in which a tier that is drawn was not reported, as `[from, to]` in seconds. */
export function gaps(series) {
  const known = new Map();
  for (const { t: times, full } of series) times.forEach((at, i) => known.set(at, (known.get(at) ?? true) && full[i] !== null));
  const times = [...known.keys()].sort((a, b) => a - b), out = [];
  times.forEach((at, i) => {
    if (known.get(at)) return;
    const from = times[i - 1] ?? at, to = times[i + 1] ?? at, last = out.at(-1);
    if (last && last[1] >= at) last[1] = to; else out.push([from, to]);
  });
  return out.filter(([from, to]) => to > from);
}

/** The history of a node's tiers: one line a tier, in percent of its capacity. */
export class Fills {
  constructor(host) {
    this.host = host;
    this.series = JSON.parse(host.dataset.series);
    this.latest = 0;
    this.wide = this.series.some((one) => one.t.at(-1) - one.t[0] > 172_800);
    this.draw();
    document.addEventListener('themechange', () => requestAnimationFrame(() => this.draw()));
    new ResizeObserver(() => { if (this.drawn && host.clientWidth) globalThis.Plotly.Plots.resize(host); }).observe(host);
  }

  traces(colour) {
    return this.series.map((one) => ({
      x: one.t.map(iso), y: one.full, name: one.tier, type: 'scatter', mode: 'lines', connectgaps: false,
      line: { color: colour[`tier-${one.tier}`], width: 1.75, dash: DASH[one.tier] }, hovertemplate: `${one.tier} %{y:.1f} %<extra></extra>`,
    }));
  }

  /** What nobody reported is hatched, as everywhere: it is unknown, not empty. */
  veil(colour) {
    const x = [], y = [];
    for (const [from, to] of this.gaps = gaps(this.series)) {
      x.push(iso(from), iso(from), iso(to), iso(to), iso(from), null);
      y.push(0, TOP, TOP, 0, 0, null);
    }
    return { x, y, type: 'scatter', mode: 'none', fill: 'toself', hoverinfo: 'skip', showlegend: false,
      fillpattern: { shape: '/', size: 6, solidity: 0.2, fgcolor: colour['line-hard'], bgcolor: 'rgba(0,0,0,0)', fillmode: 'replace' } };
  }

  draw() {
    if (!globalThis.Plotly || !this.host.clientWidth) return;
    const c = tokens(NAMES);
    const font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: c.muted };
    const axis = { gridcolor: c['line-soft'], zerolinecolor: c['line-hard'], linecolor: c['line-hard'], tickfont: font, fixedrange: true };
    const marks = this.series.filter((one) => one.high != null).map((one) => ({
      type: 'line', xref: 'paper', x0: 0, x1: 1, y0: 100 * one.high, y1: 100 * one.high, line: { color: c[`tier-${one.tier}`], width: 1, dash: 'dot' }, opacity: 0.55 }));
    const layout = {
      paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', font, margin: { l: 40, r: 8, t: 8, b: 24 }, height: 240, showlegend: false, hovermode: 'x unified',
      hoverlabel: { bgcolor: c.card, bordercolor: c.line, font: { ...font, color: c.text } }, shapes: marks,
      xaxis: { ...axis, showgrid: false, type: 'date', hoverformat: '%Y-%m-%d %H:%M:%S UTC', tickformat: this.wide ? '%m-%d' : '%H:%M' }, yaxis: { ...axis, range: [0, TOP], ticksuffix: ' %', dtick: 25 },
    };
    globalThis.Plotly.react(this.host, [this.veil(c), ...this.traces(c)], layout, { displayModeBar: false, responsive: false, showTips: false }).then(() => {
      this.drawn = true;
      root.dataset.plot = 'drawn';
      const veiled = $('[data-veiled]');
      if (veiled) veiled.hidden = !this.gaps.length;
      // The picture is described by the sentence beside it; its parts say nothing more.
      for (const part of $$('svg', this.host)) part.setAttribute('aria-hidden', 'true');
    });
  }

  /** Adds what the tiers are filled to now, at most every ten seconds. */
  add(tiers) {
    const at = now();
    if (at - this.latest < EVERY_S || !this.host.dataset.moving) return;
    this.latest = at;
    for (const one of this.series) {
      const tier = tiers[one.tier], last = one.t.at(-1);
      // While nothing was heard, nothing is known: no line leads over it.
      if (at - last > 5 * EVERY_S) { one.t.push(last + EVERY_S); one.full.push(null); }
      one.t.push(Math.round(at));
      one.full.push(tier?.used != null && tier.capacity && tier.state !== 'unknown' ? (100 * tier.used) / tier.capacity : null);
      while (one.t.length > 2 && one.t[0] < at - KEEP_S) { one.t.shift(); one.full.shift(); }
    }
    if (!document.hidden) this.draw();
  }
}

const host = $('[data-fills]');
export const fills = host ? new Fills(host) : null;
if (host && !globalThis.Plotly) host.textContent = t('no_plot');
