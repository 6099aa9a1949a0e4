// The Map: axis, crosshair, marginal bars, pinned cell, table and address around the matrix of heat.js.

import { $, $$, html, mark, onSwap, root, svg, t, write } from './dom.js';
import { clock, iec, number, short, significant } from './format.js';
import { Matrix, Painter } from './heat.js';
import { now as serverNow, refresh, start, subscribe, unsubscribe } from './live.js';
import { drawAxis } from './mapaxis.js';
import { label, path, planned } from './maprow.js';
import { joinTiles } from './tiles.js';
import { address } from './twin.js';
import { Zoom } from './zoom.js';

const LIVE_LAYER_SECONDS = 10;
const ROW_MOST_PX = 28, AROUND_PX = 360;

class Heat {
  constructor(host) {
    this.host = host;
    this.plane = $('.plane', host);
    this.canvas = $('[data-plane]', host);
    this.painter = new Painter(this.canvas);
    this.overlays = true;
    this.cursor = this.pin = null;
    this.words = new URLSearchParams(location.search).get('q') ?? '';
    this.zoom = new Zoom(this);
    this.listen();
    this.load();
  }

  get metric() { return $('[data-metric]').value; }
  get range() { return Number($('[data-range]').selectedOptions[0].dataset.seconds); }
  get wide() { const { from, to } = this.zoom.span(); return to - from > 86_400; }

  /** `quiet`: nobody asked for another picture, so the one that is there stays where none comes. */
  async load(quiet = false) {
    const token = this.token = Symbol('load');
    const query = new URLSearchParams({ metric: this.metric, layer: 'auto', ...this.zoom.span(), rows: 512 });
    this.host.setAttribute('aria-busy', 'true');
    let state = 'ready';
    try {
      // The page names the first picture in its head, so that it is on its way before this script is.
      const early = $('link[data-picture]');
      early?.remove();
      const answer = await fetch(early?.href ?? `/api/v1/map/heat.bin?${query}`);
      if (this.token !== token) return;
      if (!answer.ok) throw answer.status;
      const next = new Matrix(await answer.arrayBuffer());
      if (this.token !== token) return;
      this.keep();
      this.matrix = next;
      if (!this.matrix.rows.length || !this.matrix.width) state = 'empty';
    } catch (reason) {
      console.info('heat.bin', String(reason));
      if (quiet && root.dataset.heat === 'ready') { this.host.removeAttribute('aria-busy'); return; }
      state = reason === 403 ? 'forbidden' : 'error';
    }
    this.host.removeAttribute('aria-busy');
    this.show(state);
    if (state === 'ready' || state === 'empty') this.join();
    if (state !== 'ready') return;
    this.renew();
    this.honest();
  }

  /** A pinned cell keeps its time when another picture comes; one in the newest column stays the newest. */
  keep() {
    const { matrix, pin } = this;
    if (matrix && pin) pin.at = pin.c >= matrix.width - 1 && !this.zoom.window ? null : matrix.times[pin.c] ?? null;
  }

  /** What the rows alone say about how exact the picture is; the page's own lines come with the page. */
  honest() {
    const merged = this.matrix?.honesty.find((line) => line.code === 'rows-merged');
    const line = $('[data-merged]');
    if (!line) return;
    line.hidden = !merged;
    if (merged) write(line, t('rows_merged', { families: number(merged.params.families), rows: number(this.offered.length) }));
    $('.notice', $('#honesty')).hidden = !$('#honesty li:not([hidden])');
  }

  /** One of the pictures: ready, empty, filtered, forbidden, error. */
  show(state) {
    this.host.hidden = state !== 'ready';
    for (const part of $$('[data-heat-state]')) part.hidden = part.dataset.heatState !== state;
    if (state === 'filtered') write($('[data-filter-words]'), t('filtered', { words: this.words, n: number(this.offered.length) }));
    root.dataset.heat = state;
  }

  /** Everything again from the matrix: after loading, filtering, or resizing. */
  renew() {
    const { matrix } = this;
    const words = this.words.toLowerCase().split(/\s+/).filter(Boolean);
    // New prompts hit nothing and hold nothing: they were only computed, and only misses tell of that.
    const rows = this.offered = matrix.rows.map((row, index) => ({ row, index })).filter(({ row }) => row.kind !== 'new' || matrix.metric === 'misses');
    if (!rows.length) { this.bands = null; this.show('empty'); return; }
    this.kept = rows.filter(({ row }) => {
      const text = `${row.tenant} ${row.model} ${label(row)}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    if (!this.kept.length) { this.show('filtered'); return; }
    this.show('ready');
    // A row that is not in this picture stays wanted: it is pinned again when it is back.
    const at = this.kept.findIndex(({ row }) => row.id === (this.wanted ?? this.pin?.id)), r = Math.max(0, at);
    this.pin = { c: matrix.width - 1, ...this.pin, r, id: this.kept[r].row.id };
    $('[data-card-gone]').hidden = !this.wanted || at >= 0;
    if (this.pin.at != null) this.pin.c = Math.max(0, Math.floor((this.pin.at - matrix.times[0]) / matrix.step));
    this.pin.c = Math.min(this.pin.c, matrix.width - 1);
    this.pin.at = null;
    this.cursor = { ...this.pin };
    this.layout();
    this.paint();
    this.table();
    this.card();
  }

  /** Rows keep the order of the server; gaps tell borders: 1 px family, 5 px model and epoch, 9 px tenant. */
  layout() {
    const many = this.kept.length, least = many <= 40 ? 18 : many <= 90 ? 14 : many <= 180 ? 8 : 4;
    const unit = Math.max(least, Math.min(ROW_MOST_PX, Math.floor((innerHeight - AROUND_PX) / many)));
    let y = 0;
    this.bands = this.kept.map(({ row, index }, i) => {
      const last = this.kept[i - 1]?.row;
      if (last) y += last.tenant !== row.tenant ? 9 : last.model !== row.model ? 5 : unit > 6 ? 1 : 0;
      const band = { row: index, data: row, y, h: unit };
      y += unit;
      return band;
    });
    this.height = Math.ceil(y);
    this.plane.style.setProperty('block-size', `${this.height}px`);
    this.painter.spread(this.matrix, this.bands.map((band) => band.row));
  }

  /** The picture and what follows from it; a live column changes neither the rows' names nor the scale. */
  paint(column = false) {
    this.width = this.plane.clientWidth;
    if (!this.width || !this.bands?.length) return;
    this.painter.paint(this.matrix, this.bands, this.width, this.height);
    if (!column) { this.legend(); this.axis(); }
    this.sides();
    this.over();
    this.times();
  }

  /** A value with the unit of the metric. */
  say(value) {
    if (value === null) return t('not_reported');
    const { unit } = this.matrix;
    if (unit.startsWith('bytes')) return `${iec(value).join(' ')}${unit.slice(5)}`;
    return `${value === 0 ? '0' : value >= 1000 ? number(value) : significant(value, true)} ${t(`unit_${unit}`)}`;
  }

  /** What is so now; a window that ended says nothing of it. */
  present(value) { return this.zoom.window ? t('dash') : this.say(value); }
  /** How much is drawn, and the colours with the values they stand for: of these rows, at this brightness. */
  legend() {
    const { painter, matrix } = this, { step } = matrix;
    const wide = step < 60 ? t('seconds', { n: step }) : step < 3600 ? t('minutes', { n: step / 60 }) : t('hours', { n: step / 3600 });
    write($('[data-size]'), t('rows_columns', { rows: this.bands.length, columns: matrix.width, step: wide }));
    const [low, middle, top] = [0, 0.5, 1].map((x) => painter.valueAt(matrix, x));
    painter.scale($('[data-scale]'));
    const say = (name, value, bound = '') => write($(`[data-scale-${name}]`), `${bound}${short(value).join('')}`);
    say('low', low, painter.least < low * 0.995 ? '≤ ' : '');
    say('middle', middle);
    say('top', top, painter.most > top * 1.005 ? '≥ ' : '');
    write($('[data-scale-unit]'), t(`unit_${matrix.unit}`));
  }

  axis() { drawAxis(this.host, $('[data-axis]', this.host), this.bands, this.height, this.pin.r); }

  sides() {
    const means = this.bands.map((band) => this.matrix.sums(band.row).mean ?? 0);
    const top = Math.max(...means) || 1;
    const bar = (i) => `M8 ${this.bands[i].y}h${Math.max(0.5, 62 * Math.sqrt(means[i] / top)).toFixed(1)}v${Math.max(1, this.bands[i].h - 1)}H8z`;
    const side = $('[data-side]', this.host);
    side.setAttribute('height', this.height);
    side.replaceChildren(svg('path', { class: 'dim', d: means.map((_, i) => (i === this.pin.r ? '' : bar(i))).join('') }), svg('path', { d: bar(this.pin.r) }));
    this.sums = this.matrix.totals(this.bands.map((band) => band.row));
    const max = Math.max(...this.sums) || 1, w = this.width / this.matrix.width;
    const post = (c) => `M${(c * w).toFixed(2)} 4h${(w + 0.3).toFixed(2)}v${((42 * this.sums[c]) / max).toFixed(1)}h${(-w - 0.3).toFixed(2)}z`;
    $('[data-bottom]', this.host).replaceChildren(
      svg('path', { class: 'dim', d: Array.from(this.sums, (_, c) => post(c)).join('') }), svg('path', { d: post(this.cursor.c) }));
    write($('[data-bmax]', this.host), t('max', { n: this.say(max).split(' ')[0] }));
  }

  x(c) { return (c / this.matrix.width) * this.width; }

  over() {
    const lines = [], notes = [];
    const { matrix } = this;
    if (this.overlays) {
      let free = -100;
      for (const note of JSON.parse($('[data-notes-list]')?.dataset.notesList ?? '[]')) {
        const c = (note.t - matrix.times[0]) / matrix.step;
        if (c < 0 || c > matrix.width) continue;
        const x = this.x(c), end = x > this.width - 140;
        lines.push(svg('line', { class: 'note', x1: x, x2: x, y1: 0, y2: this.height }));
        notes.push(svg('line', { x1: x, x2: x, y1: 16, y2: 24 }));
        if (Math.abs(x - free) > 110) { notes.push(svg('text', { x: end ? x - 4 : x + 4, y: 14, 'text-anchor': end ? 'end' : 'start' }, note.text)); free = x; }
      }
    }
    const band = this.bands[this.cursor.r], cx = this.x(this.cursor.c + 0.5), cy = band.y + band.h / 2;
    for (const name of ['cross under', 'cross']) {
      lines.push(svg('line', { class: name, x1: cx, x2: cx, y1: 0, y2: this.height }), svg('line', { class: name, x1: 0, x2: this.width, y1: cy, y2: cy }));
    }
    const pinned = this.bands[this.pin.r], box = { x: this.x(this.pin.c) - 5, y: pinned.y - 4, width: this.x(1) + 10, height: pinned.h + 8 };
    lines.push(svg('rect', { class: 'pin-in', x: box.x - 1.5, y: box.y - 1.5, width: box.width + 3, height: box.height + 3 }), svg('rect', { class: 'pin', ...box }));
    $('[data-over]', this.host).replaceChildren(...this.zoom.band(), ...lines);
    $('[data-notes]', this.host).replaceChildren(...notes);
  }

  times() {
    const spans = $$('.times span', this.host), { times, step } = this.matrix;
    spans.forEach((span, i) => write(span, clock(times[0] + ((times.at(-1) + step - times[0]) * i) / (spans.length - 1), this.wide).replace(/:\d\d$/, (all) => (this.wide || step * times.length < 900 ? all : ''))));
  }

  readout() {
    const { data, row } = this.bands[this.cursor.r], box = $('[data-readout]', this.host);
    box.replaceChildren(html('b', {}, this.say(this.matrix.value(row, this.cursor.c))), `${label(data)} · ${clock(this.matrix.times[this.cursor.c], this.wide)} UTC`);
    box.hidden = false;
    const x = this.x(this.cursor.c), left = x > this.width - box.offsetWidth - 20 ? Math.max(0, x - box.offsetWidth - 12) : x + 12;
    box.style.setProperty('transform', `translate(${left}px, ${Math.max(0, this.bands[this.cursor.r].y - 48)}px)`);
    write($('[data-readout-said]'), box.textContent);
  }

  card() {
    const { data, row } = this.bands[this.pin.r], { matrix } = this, host = $('[data-card]');
    const { mean, now, partial } = matrix.sums(row);
    const set = (key, text) => write($(`[data-card-${key}]`, host), text);
    set('path', path(data)); set('name', label(data)); set('time', `${clock(matrix.times[this.pin.c], this.wide)} UTC`);
    set('value', this.say(matrix.value(row, this.pin.c)));
    set('mean', `${partial && mean !== null ? '≥ ' : ''}${this.say(mean)}`);
    set('now', this.present(now));
    const id = $('[data-card-id]', host);
    mark(id, 'data-copy', data.family || data.id);
    write($('[data-card-id-text]', host), (data.family || data.id).replace(/^(.{8}).{4,}(.{4})$/, '$1…$2'));
    const values = matrix.times.map((_, c) => matrix.value(row, c)), top = Math.max(...values.map((v) => v ?? 0)) || 1;
    let pen = 'M';
    const line = values.map((v, c) => { if (v === null) { pen = 'M'; return ''; } const part = `${pen}${((100 * c) / Math.max(1, matrix.width - 1)).toFixed(1)} ${(100 - (100 * v) / top).toFixed(1)}`; pen = 'L'; return part; });
    mark($('.ln', host), 'd', line.join('') || 'M0 100');
    for (const end of ['x1', 'x2']) mark($('.note', host), end, ((100 * this.pin.c) / matrix.width).toFixed(1));
    $$('.y span', host).forEach((span, i) => write(span, this.say((top * i) / 2)));
    $$('.x span', host).forEach((span, i) => write(span, clock(matrix.times[Math.min(matrix.width - 1, Math.round(((matrix.width - 1) * i) / 2))], this.wide).slice(0, this.wide ? 5 : 5)));
    address('pin', this.wanted ?? this.pin.id);
    for (const [name, form] of [['delete', '/deletions/new'], ['prefetch', '/prefetches/new']]) mark($(`[data-card-${name}]`, host), 'href', planned(form, data));
  }

  table() {
    const rows = this.bands.map((band) => ({ band, ...this.matrix.sums(band.row) })).sort((a, b) => (b.mean ?? -1) - (a.mean ?? -1));
    $('[data-heat-table] tbody').replaceChildren(...rows.map(({ band: { data }, mean, now, partial }) => html('tr', mean === null ? { 'data-state': 'silent' } : {},
      html('th', { scope: 'row' }, label(data)), html('td', {}, data.tenant), html('td', {}, data.model),
      html('td', { class: 'n' }, mean === null ? t('not_reported') : `${partial ? '≥ ' : ''}${this.say(mean)}`), html('td', { class: 'n' }, this.present(now)),
      html('td', {}, t(mean === null ? 'reported_none' : partial ? 'reported_part' : 'reported_all')))));
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect(), y = event.clientY - box.top;
    const r = this.bands.findIndex((band) => y < band.y + band.h);
    this.cursor = { c: Math.max(0, Math.min(this.matrix.width - 1, Math.floor(((event.clientX - box.left) / box.width) * this.matrix.width))), r: r < 0 ? this.bands.length - 1 : r };
  }

  setPin() {
    this.pin = { ...this.cursor, id: this.wanted = this.bands[this.cursor.r].data.id };
    $('[data-card-gone]').hidden = true;
    this.axis(); this.sides(); this.over(); this.card();
  }

  move(event) {
    const far = event.shiftKey ? 10 : 1;
    const by = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, -far], ArrowDown: [0, far] }[event.key];
    if (event.key === 'Enter') { this.setPin(); return; }
    if (!by) return;
    event.preventDefault();
    this.cursor.c = Math.max(0, Math.min(this.matrix.width - 1, this.cursor.c + by[0]));
    this.cursor.r = Math.max(0, Math.min(this.bands.length - 1, this.cursor.r + by[1]));
    this.over();
    this.readout();
  }

  listen() {
    const ready = (action) => (event) => { if (this.matrix && this.bands?.length) action(event); };
    const { canvas } = this;
    canvas.addEventListener('pointermove', ready((event) => { this.place(event); this.over(); this.readout(); }));
    canvas.addEventListener('pointerleave', ready(() => { $('[data-readout]', this.host).hidden = true; this.cursor = { ...this.pin }; this.over(); }));
    canvas.addEventListener('blur', () => { $('[data-readout]', this.host).hidden = true; });
    canvas.addEventListener('click', ready((event) => { this.place(event); this.setPin(); }));
    canvas.addEventListener('keydown', ready((event) => this.move(event)));
    for (const button of $$('[data-bright]')) {
      button.addEventListener('click', ready(() => {
        this.painter.bright = Math.max(-6, Math.min(6, this.painter.bright + Number(button.dataset.bright)));
        write($('[data-bright-out]'), String(Number((2 ** (this.painter.bright / 2)).toFixed(2))));
        this.paint();
      }));
    }
    $('[data-overlay]').addEventListener('click', ready((event) => {
      this.overlays = !this.overlays;
      event.currentTarget.setAttribute('aria-pressed', String(this.overlays));
      this.over();
    }));
    const filter = $('[data-filter]');
    filter.value = this.words;
    const refilter = (words) => { this.words = filter.value = words; address('q', words); this.renew(); };
    const loaded = (action) => () => { if (this.matrix) action(); };  // where no row matches, words can be changed all the same
    filter.addEventListener('input', loaded(() => refilter(filter.value.trim())));
    for (const button of $$('[data-filter-drop]')) button.addEventListener('click', loaded(() => refilter('')));
    $('[data-card-filter]').addEventListener('click', ready(() => refilter(label(this.bands[this.pin.r].data))));
    for (const name of ['metric', 'range']) {
      $(`[data-${name}]`).addEventListener('change', (event) => {
        address(name, event.target.value);
        if (name === 'metric') for (const part of $$('[data-metric-name]')) write(part, event.target.selectedOptions[0].textContent);
        this.leave();
        if (name === 'range' && this.zoom.window) this.zoom.go(null);
        else { this.load(); refresh(); }
      });
    }
    $('[data-heat-retry]')?.addEventListener('click', () => this.load());
    let width = 0;
    new ResizeObserver(() => { if (this.plane.clientWidth !== width && this.bands) { width = this.plane.clientWidth; this.layout(); this.paint(); } }).observe(this.plane);
    document.addEventListener('themechange', () => requestAnimationFrame(() => { this.painter.retint(); this.paint(); }));
    onSwap(ready(() => { this.honest(); this.over(); }));
    document.body.addEventListener('kvc:refresh', () => { if (root.dataset.heat === 'error') this.load(); });
    this.wanted = new URLSearchParams(location.search).get('pin');
  }

  leave() { if (this.topic) unsubscribe(this.topic); this.topic = null; }

  join() {
    const topic = `map:${this.matrix.metric}`;
    if (this.topic === topic) return;
    this.leave();
    this.topic = topic;
    subscribe(topic, { render: (snapshot) => this.frame(snapshot), apply: (delta) => this.frame(delta), poll: () => { this.load(true); } });
  }

  /** One live frame: the newest columns. A new axis, a hole or a coarser layer loads the picture again. */
  frame({ axis, columns }) {
    if (this.zoom.window) return;
    if (axis?.version != null && axis.version !== this.matrix.axis) { this.again(); return; }
    if (this.matrix.step !== LIVE_LAYER_SECONDS) { if (serverNow() > this.matrix.times.at(-1) + 3 * this.matrix.step) this.again(); return; }
    if (!this.matrix.width) { if (Object.keys(columns ?? {}).length && this.matrix.rows.length) this.again(); return; }
    if (!this.bands) return;
    let news = false, beyond = false;
    for (const [time, column] of Object.entries(columns ?? {}).sort((a, b) => a[0] - b[0])) {
      if (!column || Number(time) < this.matrix.times.at(-1)) continue;
      if (column.axis != null && column.axis !== this.matrix.axis) { this.again(); return; }
      const levels = Uint8Array.from(atob(column.levels), (c) => c.charCodeAt(0));
      const pushed = this.matrix.push(Number(time), levels);
      beyond ||= this.painter.reach(this.matrix, levels, this.bands);
      if (pushed === 'hole') { this.again(); return; }
      // The pinned cell and the crosshair stay on their time while the picture moves.
      if (pushed === 'next') for (const place of [this.pin, this.cursor]) if (place.c < this.matrix.width - 1) place.c = Math.max(0, place.c - 1);
      news = true;
    }
    if (!news || document.hidden || this.host.hidden) return;
    this.paint(!beyond);
    root.dataset.column = String(this.matrix.times.at(-1));
  }

  /** Loads again, at most once in two seconds. */
  again() {
    if (this.waiting) return;
    this.waiting = setTimeout(() => { this.waiting = null; this.load(true); }, this.loaded && Date.now() - this.loaded < 2000 ? 2000 : 0);
    this.loaded = Date.now();
  }
}

const host = $('[data-heat]');
if (host) globalThis.kvcHeat = new Heat(host);
joinTiles();
start();
