// Single keys. They can be switched off in the sheet that "?" opens; Ctrl/⌘ K always works.

import { $, root } from './dom.js';
import { copy, tab } from './twin.js';
import { remember } from './theme.js';
import { openPalette } from './palette.js';

const sheet = $('[data-keys-dialog]');
const go = Object.fromEntries([...document.querySelectorAll('[data-go]')].map((link) => [link.dataset.go, link.href]));
let prefix = false;

const press = (selector) => () => $(selector)?.click();
const focus = (selector) => () => $(selector)?.focus();
const single = {
  '?': () => sheet?.showModal(),
  '/': focus('.topbar [data-search]'),
  l: press('[data-live]'),
  c: () => copy(location.href),
  o: press('[data-overlay]'),
  m: focus('[data-metric]'),
  r: focus('[data-range]'),
  '[': press('[data-zoom="earlier"]'),
  ']': press('[data-zoom="later"]'),
  '=': press('[data-zoom="near"]'),
  '-': press('[data-zoom="far"]'),
  '+': press('[data-bright="1"]'),
  _: press('[data-bright="-1"]'),
  1: () => { const one = $('[data-tab="heat"]'); if (one) one.click(); },
  2: () => { const two = $('[data-tab="tiles"]'); if (two) two.click(); },
};

document.addEventListener('keydown', (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') { event.preventDefault(); openPalette(); return; }
  if (root.dataset.keys === 'off' || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.('input, textarea, select, dialog[open]')) return;
  if (prefix) {
    prefix = false;
    if (go[event.key]) { event.preventDefault(); location.href = go[event.key]; }
    return;
  }
  if (event.key === 'g') { prefix = true; setTimeout(() => { prefix = false; }, 1200); return; }
  if (Object.hasOwn(single, event.key)) { event.preventDefault(); single[event.key](); }
});

for (const opener of document.querySelectorAll('[data-keys-open]')) opener.addEventListener('click', () => sheet?.showModal());
$('[data-keys-switch]')?.addEventListener('change', (event) => {
  root.dataset.keys = event.target.checked ? 'on' : 'off';
  remember(event.target.form, 'keys', root.dataset.keys);
});
for (const dialog of document.querySelectorAll('dialog')) {
  dialog.addEventListener('click', (event) => { if (event.target === dialog || event.target.closest('[data-close]')) dialog.close(); });
}
if (new URLSearchParams(location.search).get('view')) tab(new URLSearchParams(location.search).get('view'));
