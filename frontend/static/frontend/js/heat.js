// The heat map's figures and its pixels: a matrix of 8-bit levels, a table of 256 colours, one image, no smoothing.

import { isDark, tokens } from './theme.js';

const CIVIDIS = ['#00224e', '#123570', '#3b496c', '#575d6d', '#707173', '#8a8678', '#a59c74', '#c3b369', '#e1cc55', '#fde737'];
export const UNKNOWN = 255;
const TOP = 254;
const FAINT = 0.03, SPAN = 8;

/** What heat.bin says: rows × columns of levels, 0 = zero, 1…254 on a symlog scale, 255 = not reported. */
export class Matrix {
  constructor(buffer) {
    const view = new DataView(buffer);
    const magic = String.fromCharCode(...new Uint8Array(buffer, 0, 4));
    if (magic !== 'KVH1') throw new Error(`heat.bin begins with ${magic}`);
    const length = view.getUint32(4, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
    Object.assign(this, { axis: head.axis, rows: head.rows, times: head.columns, step: head.step_seconds, layer: head.layer,
      metric: head.metric, unit: head.unit, max: head.scale.max, linear: head.scale.linear || 1, honesty: head.honesty ?? [], asOf: head.as_of });
    this.levels = new Uint8Array(buffer.slice(8 + length));
    this.curve = Math.log1p(this.max / this.linear) || 1;
    this.lookup = Float64Array.from({ length: 256 }, (_, level) => this.#value(level));
  }

  #value(level) {
    if (level === 0 || level === UNKNOWN) return 0;
    return this.linear * Math.expm1(((level - 1) / (TOP - 1)) * this.curve);
  }

  get width() { return this.times.length; }
  level(row, column) { return this.levels[row * this.width + column]; }

  /** The value of a cell, null where nobody reported it. */
  value(row, column) {
    const level = this.level(row, column);
    return level === UNKNOWN ? null : this.lookup[level];
  }

  /** Takes the newest column: 'same' (replaced), 'next' (the oldest left), 'hole' (load again). */
  push(time, column) {
    const { width, levels } = this;
    const last = this.times[width - 1];
    if (column.length !== this.rows.length || time < last) return 'hole';
    if (time > last + this.step) return 'hole';
    if (time > last) {
      this.times.push(time);
      this.times.shift();
      for (let row = 0; row < this.rows.length; row += 1) levels.copyWithin(row * width, row * width + 1, (row + 1) * width);
    }
    for (let row = 0; row < column.length; row += 1) levels[row * width + width - 1] = column[row];
    return time > last ? 'next' : 'same';
  }

  /** Mean over the known cells of a row, what it is now, and whether cells are missing. */
  sums(row) {
    let sum = 0, known = 0;
    const from = row * this.width;
    for (let c = 0; c < this.width; c += 1) {
      const level = this.levels[from + c];
      if (level !== UNKNOWN) { sum += this.lookup[level]; known += 1; }
    }
    const rest = this.width - known;
    return { mean: known ? sum / known : null, now: this.value(row, this.width - 1), partial: rest > 0 };
  }

  /** Sums of all given rows by column. */
  totals(rows) {
    const out = new Float64Array(this.width);
    for (const row of rows) {
      const from = row * this.width;
      for (let c = 0; c < this.width; c += 1) out[c] += this.lookup[this.levels[from + c]];
    }
    return out;
  }
}

const parse = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map(Number);

/** Paints a matrix on a canvas; rows lie where `bands` says: `{row, y, h}` in CSS pixels, ordered. */
export class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.image = document.createElement('canvas');
    this.bright = 0;
    Object.assign(this, { low: 0, high: 1, least: 0, most: 1 });
    this.retint();
  }

  /** The colours are spread over what these rows show, so that they differ where the figures do; not over less than
   * eightfold, so that noise stays pale. `low` and `high` are places on the scale, `least` and `most` the values. */
  spread(matrix, rows) {
    const { width, levels, curve, lookup } = matrix, count = new Uint32Array(256);
    for (const row of rows) for (let i = row * width; i < (row + 1) * width; i += 1) count[levels[i]] += 1;
    const seen = [...count.keys()].filter((level) => level > 0 && level < UNKNOWN && count[level]);
    let rest = FAINT * seen.reduce((sum, level) => sum + count[level], 0);
    const first = seen.find((level) => (rest -= count[level]) < 0) ?? 1, last = seen.at(-1) ?? 1;
    this.high = Math.max(last - 1, 1) / (TOP - 1);
    this.low = Math.max(0, Math.min((first - 1) / (TOP - 1), this.high - Math.log(SPAN) / curve));
    Object.assign(this, { least: lookup[seen[0] ?? 0], most: lookup[last] });
  }

  /** A new column has more than any before: the darkest colour is that one's. Whether it was so. */
  reach(matrix, column, bands) {
    const top = Math.max(0, ...bands.map(({ row }) => column[row]).filter((level) => level !== UNKNOWN));
    if ((top - 1) / (TOP - 1) <= this.high) return false;
    Object.assign(this, { high: (top - 1) / (TOP - 1), most: matrix.lookup[top] });
    return true;
  }

  get gain() { return 2 ** (this.bright / 2); }

  /** The value whose colour is at `x` of the legend, from 0 to 1. */
  valueAt(matrix, x) {
    return (matrix.linear * Math.expm1((this.low + x * (this.high - this.low)) * matrix.curve)) / this.gain;
  }

  /** Reads the colours of the theme again. */
  retint() {
    const { sunken, text } = tokens(['sunken', 'text']);
    this.zero = parse(sunken);
    this.ink = text;
    const stops = (isDark() ? CIVIDIS : [...CIVIDIS].reverse()).map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
    this.at = (x) => {
      const p = Math.max(0, Math.min(1, x)) * (stops.length - 1);
      const a = stops[Math.floor(p)], b = stops[Math.min(stops.length - 1, Math.floor(p) + 1)];
      return a.map((value, k) => value + (b[k] - value) * (p % 1));
    };
  }

  /** 256 packed colours for this matrix at this brightness (steps of √2 on the value). */
  table(matrix) {
    const out = new Uint32Array(256);
    const bytes = new Uint8Array(out.buffer);
    const { gain, low, high } = this;
    for (let level = 0; level < 256; level += 1) {
      const plain = level === 0 || level === UNKNOWN;
      const colour = plain ? this.zero : this.at((Math.log1p((matrix.lookup[level] * gain) / matrix.linear) / matrix.curve - low) / (high - low));
      bytes.set([...colour.map(Math.round), 255], level * 4);
    }
    return out;
  }

  paint(matrix, bands, width, height) {
    const ratio = Math.min(2, devicePixelRatio || 1);
    const { canvas, image } = this;
    const columns = matrix.width;
    if (!columns || !bands.length || !width) return;
    const w = Math.round(width * ratio), h = Math.round(height * ratio);
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    if (image.width !== columns || image.height !== bands.length) { image.width = columns; image.height = bands.length; this.data = null; }
    const off = image.getContext('2d', { willReadFrequently: true });
    this.data ??= off.createImageData(columns, bands.length);
    const pixels = new Uint32Array(this.data.data.buffer);
    const lut = this.table(matrix);
    let unknown = false;
    bands.forEach((band, i) => {
      const from = band.row * columns;
      for (let c = 0; c < columns; c += 1) {
        const level = matrix.levels[from + c];
        if (level === UNKNOWN) unknown = true;
        pixels[i * columns + c] = lut[level];
      }
    });
    off.putImageData(this.data, 0, 0);
    const context = canvas.getContext('2d');
    context.imageSmoothingEnabled = false;
    context.clearRect(0, 0, w, h);
    bands.forEach((band, i) => {
      const top = Math.round(band.y * ratio);
      context.drawImage(image, 0, i, columns, 1, 0, top, w, Math.round((band.y + band.h) * ratio) - top);
    });
    if (unknown) this.veil(context, matrix, bands, w, ratio);
  }

  /** Unknown is a veil, never zero: a hatch over runs of cells that nobody reported. */
  veil(context, matrix, bands, w, ratio) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = Math.round(6 * ratio);
    const pen = tile.getContext('2d');
    pen.strokeStyle = this.ink;
    pen.globalAlpha = 0.5;
    pen.lineWidth = ratio;
    for (const d of [-tile.width, 0, tile.width]) { pen.moveTo(d - 1, tile.height + 1); pen.lineTo(d + tile.width + 1, -1); }
    pen.stroke();
    context.fillStyle = context.createPattern(tile, 'repeat');
    const columns = matrix.width;
    context.beginPath();
    for (const band of bands) {
      const top = Math.round(band.y * ratio), tall = Math.round((band.y + band.h) * ratio) - top;
      let start = -1;
      for (let c = 0; c <= columns; c += 1) {
        const missing = c < columns && matrix.level(band.row, c) === UNKNOWN;
        if (missing && start < 0) start = c;
        if (!missing && start >= 0) {
          context.rect(Math.round((w * start) / columns), top, Math.round((w * (c - start)) / columns), tall);
          start = -1;
        }
      }
    }
    context.fill();
  }

  /** The legend: the same colours, from the value at 0 to the one at 1. */
  scale(canvas) {
    const context = canvas.getContext('2d'), wide = canvas.width;
    for (let x = 0; x < wide; x += 1) {
      context.fillStyle = `rgb(${this.at(x / (wide - 1)).map(Math.round).join(' ')})`;
      context.fillRect(x, 0, 1, canvas.height);
    }
  }
}
