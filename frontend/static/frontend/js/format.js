// The same words as frontend/formats.py, for numbers that tick in the browser.

import { html, t } from './dom.js';

const IEC = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
const fixed = (value, digits) => value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });

export const number = (value, digits = 0) => (value == null ? t('dash') : fixed(value, digits));
export const share = (value, digits = 1) => (value == null ? t('dash') : `${fixed(100 * value, digits)} %`);

/** Three digits that matter. */
export function significant(value, whole = false) {
  if (whole && Number.isInteger(value)) return fixed(value, 0);
  const size = Math.abs(value);
  return fixed(value, size >= 99.5 ? 0 : size >= 9.95 ? 1 : 2);
}

/** [number, prefix], SI. */
export function short(value) {
  let step = 0;
  while (Math.abs(value) >= 999.5 && step < 4) { value /= 1000; step += 1; }
  return [significant(value, step === 0), ['', 'k', 'M', 'G', 'T'][step]];
}

/** [number, unit]; `like` fixes the unit to that of another value. */
export function iec(value, like = value) {
  let step = 0, size = Math.abs(like);
  while (size >= 1000 && step < 6) { size /= 1024; step += 1; }
  const scaled = value / 1024 ** step;
  const digits = step === 0 || Number.isInteger(scaled) || Math.abs(scaled) >= 99.95 ? 0 : Math.abs(scaled) >= 9.995 ? 1 : 2;
  return [fixed(scaled, digits), IEC[step]];
}

export const size = (value) => (value == null ? t('dash') : iec(value).join(' '));

/** An age or a lag. */
export function duration(seconds) {
  if (seconds == null) return t('dash');
  const s = Math.max(0, seconds);
  if (s < 60) return t('seconds', { n: s < 10 ? s.toFixed(1) : s.toFixed(0) });
  if (s < 3600) return t('minutes', { n: Math.floor(s / 60) });
  if (s < 172800) return t('hours', { n: Math.floor(s / 3600) });
  return t('days', { n: Math.floor(s / 86400) });
}

/** The same from milliseconds; short ones stay milliseconds. */
export const ms = (value) => (value > 0 && value < 100 ? t('milliseconds', { n: value.toFixed(0) }) : duration(value / 1000));

const two = (n) => String(n).padStart(2, '0');

/** Time of day in UTC from seconds since 1970; `wide` adds the date where the picture is longer than a day. */
export function clock(seconds, wide = false) {
  const d = new Date(seconds * 1000);
  const time = `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}`;
  return wide ? `${two(d.getUTCMonth() + 1)}-${two(d.getUTCDate())} ${time}` : `${time}:${two(d.getUTCSeconds())}`;
}

/** The picture of an unknown value. */
export const unknown = () => html('span', { class: 'unk' }, t('dash'), html('span', { class: 'sr' }, t('unknown')));
