// The page of epochs: bytes of old epochs as measured and as forecast. The same look as a node's history.

import { $, $$, root, t } from './dom.js';
import { tokens } from './theme.js';

const host = $('[data-old]');
const LOOK = { measured: { dash: 'solid', width: 2, colour: 'text' }, forecast: { dash: 'dash', width: 1.5, colour: 'muted' } };
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** The unit in which the highest value has one to three digits. */
function unit(top) {
  let step = 0;
  while (top >= 1000 && step < UNITS.length - 1) { top /= 1024; step += 1; }
  return [1024 ** step, UNITS[step]];
}

function draw() {
  if (!globalThis.Plotly || !host.clientWidth) return;
  const series = JSON.parse(host.dataset.series);
  const c = tokens(['text', 'muted', 'line', 'line-soft', 'line-hard', 'card']);
  const [scale, name] = unit(Math.max(1, ...series.flatMap((one) => one.y)));
  const font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: c.muted };
  const axis = { gridcolor: c['line-soft'], zerolinecolor: c['line-hard'], linecolor: c['line-hard'], tickfont: font, fixedrange: true };
  const traces = series.map((one) => ({
    x: one.t.map((s) => new Date(s * 1000).toISOString()), y: one.y.map((v) => v / scale), type: 'scatter', mode: one.t.length > 1 ? 'lines' : 'markers',
    line: { color: c[LOOK[one.name].colour], width: LOOK[one.name].width, dash: LOOK[one.name].dash }, marker: { color: c[LOOK[one.name].colour] }, hovertemplate: `%{y:.3~g} ${name}<extra></extra>`,
  }));
  const layout = {
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', font, margin: { l: 64, r: 8, t: 8, b: 40 }, height: 240, showlegend: false, hovermode: 'x unified',
    hoverlabel: { bgcolor: c.card, bordercolor: c.line, font: { ...font, color: c.text } },
    xaxis: { ...axis, showgrid: false, type: 'date', hoverformat: '%Y-%m-%d %H:%M UTC', tickformat: '%H:%M\n%m-%d', nticks: 6 }, yaxis: { ...axis, rangemode: 'tozero', ticksuffix: ` ${name}` },
  };
  globalThis.Plotly.react(host, traces, layout, { displayModeBar: false, responsive: false, showTips: false }).then(() => {
    root.dataset.plot = 'drawn';
    for (const part of $$('svg', host)) part.setAttribute('aria-hidden', 'true');
  });
}

if (host && !globalThis.Plotly) host.textContent = t('no_plot');
else if (host) {
  draw();
  document.addEventListener('themechange', () => requestAnimationFrame(draw));
  new ResizeObserver(() => { if (root.dataset.plot && host.clientWidth) globalThis.Plotly.Plots.resize(host); }).observe(host);
}
