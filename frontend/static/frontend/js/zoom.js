// A window of time on the map: by dragging, by buttons, by keys. The address keeps it, and one button leads back.
// Without a window the map shows the chosen range up to the present, and moves; a window stands still.

import { $, $$, announce, svg, t, write } from './dom.js';
import { clock } from './format.js';
import { now, refresh } from './live.js';
import { address } from './twin.js';

const DRAG_PX = 6, COLUMNS_LEAST = 6;
/** Seconds a column, by how long such columns are kept; the same layers as the server's. */
const LAYERS = [[3_600, 10], [43_200, 60], [604_800, 600], [2_592_000, 3_600], [Infinity, 21_600]];

export class Zoom {
  constructor(heat) {
    this.heat = heat;
    this.begun = this.ended = null;
    const given = new URLSearchParams(location.search);
    const [from, to] = [Number(given.get('from')), Number(given.get('to'))];
    this.window = from > 0 && to > from && to <= now() + 60 ? { from, to } : null;
    this.listen();
    this.show();
  }

  /** The time that is asked for, in seconds. */
  span() {
    const to = Math.floor(now());
    return this.window ?? { from: to - this.heat.range, to };
  }

  /** Whole columns of the layer that still holds the begin, at least six of them, and none of the future. */
  fitted(from, to) {
    const [, step] = LAYERS.find(([kept]) => now() - from <= kept + 60);
    const most = Math.floor(now() / step) * step, least = COLUMNS_LEAST * step;
    let a = Math.floor(from / step) * step, b = Math.ceil(to / step) * step;
    if (b - a < least) { a = Math.floor((from + to - least) / 2 / step) * step; b = a + least; }
    if (b > most) { a -= b - most; b = most; }
    return { from: a, to: b };
  }

  /** The map shows this window, or with null the chosen range again. */
  go(wanted) {
    this.window = wanted && this.fitted(wanted.from, wanted.to);
    this.show();
    address('from', this.window?.from);
    address('to', this.window?.to);
    announce(this.window ? t('window_said', { window: this.words() }) : t('live_back'));
    this.heat.load();
    refresh();
  }

  words() {
    const { from, to } = this.window, far = now() - from > 72_000;
    return `${clock(from, far)} – ${clock(to, far)} UTC`;
  }

  show() {
    for (const part of $$('[data-zoomed]')) part.hidden = !this.window;
    if (this.window) write($('[data-zoom-words]'), this.words());
  }

  /** `factor` below 1 goes nearer, around the crosshair; above 1 farther, until the whole range is seen again. */
  scale(factor) {
    const { from, to } = this.span(), { matrix, cursor, range } = this.heat;
    const centre = factor < 1 && cursor ? matrix.times[cursor.c] + matrix.step / 2 : (from + to) / 2;
    const half = ((to - from) * factor) / 2;
    if (half * 2 >= range && now() - to < half) { if (this.window) this.go(null); return; }
    this.go({ from: centre - half, to: centre + half });
  }

  /** Half a window back or on; at the present the whole range moves again. */
  shift(side) {
    const { from, to } = this.span(), by = (side * (to - from)) / 2;
    if (side > 0 && !this.window) return;
    if (side > 0 && to - from >= this.heat.range && to + by >= now()) { this.go(null); return; }
    this.go({ from: from + by, to: to + by });
  }

  /** The window between two columns, both within. */
  between(a, b) {
    const { times, step } = this.heat.matrix;
    this.begun = this.ended = null;
    this.go({ from: times[Math.min(a, b)], to: times[Math.max(a, b)] + step });
  }

  /** Begin, then end of a window at the crosshair: what dragging does, by key. */
  mark() {
    const { c } = this.heat.cursor;
    if (this.begun === null) { this.begun = c; this.heat.over(); announce(t('window_begun')); } else this.between(this.begun, c);
  }

  drop() {
    this.begun = this.ended = null;
    this.heat.over();
  }

  /** The band over the picture while a window is chosen. */
  band() {
    if (this.begun === null) return [];
    const end = this.ended ?? this.heat.cursor.c, a = Math.min(this.begun, end), b = Math.max(this.begun, end);
    return [svg('rect', { class: 'brush', x: this.heat.x(a), y: 0, width: this.heat.x(b + 1) - this.heat.x(a), height: this.heat.height })];
  }

  listen() {
    const { canvas } = this.heat;
    let start = null, dragged = false;
    canvas.addEventListener('pointerdown', (event) => {
      dragged = false;
      if (event.button || !event.isPrimary || !this.heat.bands?.length) return;
      this.heat.place(event);
      start = { x: event.clientX, c: this.heat.cursor.c };
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!start || (!dragged && Math.abs(event.clientX - start.x) < DRAG_PX)) return;
      if (!dragged) { dragged = true; canvas.setPointerCapture(event.pointerId); this.begun = start.c; }
      this.heat.place(event);
      this.ended = this.heat.cursor.c;
    });
    canvas.addEventListener('pointerup', () => {
      const ended = dragged && start && this.begun !== null;
      start = null;
      if (ended) this.between(this.begun, this.ended);
    });
    canvas.addEventListener('pointercancel', () => { start = null; if (dragged) this.drop(); });
    // A drag ends with a click, too: that one pins nothing.
    canvas.addEventListener('click', (event) => { if (dragged) event.stopImmediatePropagation(); dragged = false; });
    canvas.addEventListener('keydown', (event) => {
      if (!this.heat.bands?.length || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === 'b') this.mark();
      if (event.key === 'Escape' && this.begun !== null) { start = null; this.drop(); }
    });
    const act = { earlier: () => this.shift(-1), later: () => this.shift(1), near: () => this.scale(0.5), far: () => this.scale(2), back: () => this.go(null) };
    for (const button of $$('[data-zoom]')) button.addEventListener('click', () => { if (this.heat.matrix) act[button.dataset.zoom](); });
    // Parts that come again are those of the view that is shown, not of the one the page began with.
    document.body.addEventListener('htmx:configRequest', (event) => {
      if (event.detail.elt.matches('[hx-trigger^="kvc:refresh"]')) event.detail.path = location.pathname + location.search;
    });
  }
}
