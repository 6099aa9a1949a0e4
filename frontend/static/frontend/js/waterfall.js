// The waterfall of one decision: seven terms as expected and as measured, each beginning where the one before ended,
// and the outline of the same request without any cache. The table beside it has the same numbers.

import { $, $$, root, t } from './dom.js';
import { tokens } from './theme.js';

const host = $('[data-fall]');

function draw() {
  if (!globalThis.Plotly || !host.clientWidth) return;
  const rows = JSON.parse(host.dataset.series), names = JSON.parse(host.dataset.names);
  const c = tokens(['text', 'muted', 'line', 'line-soft', 'line-hard', 'card', 'cat-1', 'cat-3', 'ghost']);
  const font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: c.muted };
  const axis = { gridcolor: c['line-soft'], zerolinecolor: c['line-hard'], linecolor: c['line-hard'], tickfont: font, fixedrange: true };
  const bars = (kind, marker, offset, width) => ({
    type: 'bar', orientation: 'h', name: names[kind], y: rows.map((row) => row.term), width, offset, marker,
    base: rows.map((row) => row[kind]?.[0] ?? 0), x: rows.map((row) => row[kind]?.[1] ?? null),
    hovertemplate: `${names[kind]} %{x:,.1f} ms<extra></extra>`,
  });
  const traces = [
    bars('ghost', { color: 'rgba(0,0,0,0)', line: { color: c.ghost, width: 1 } }, -0.42, 0.84),
    bars('expected', { color: c['cat-3'] }, -0.36, 0.34),
    bars('measured', { color: c['cat-1'] }, 0.02, 0.34),
  ];
  const layout = {
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', font, height: 300, showlegend: false, barmode: 'overlay', margin: { l: 8, r: 12, t: 8, b: 28 },
    hoverlabel: { bgcolor: c.card, bordercolor: c.line, font: { ...font, color: c.text } },
    xaxis: { ...axis, rangemode: 'tozero', ticksuffix: ' ms', nticks: 6 }, yaxis: { ...axis, autorange: 'reversed', showgrid: false, automargin: true },
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
