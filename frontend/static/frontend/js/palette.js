// Ctrl/⌘ K: every page and node by name. The entries are links the server wrote; nothing is asked of it while typing.

import { $, $$, root } from './dom.js';

const dialog = $('[data-palette-dialog]');
const box = dialog && $('input', dialog);
const items = dialog ? $$('[data-item]', dialog) : [];
let at = 0;

const shown = () => items.filter((item) => !item.hidden);

function choose(index) {
  const list = shown();
  at = list.length ? (index + list.length) % list.length : 0;
  items.forEach((item) => item.setAttribute('aria-selected', 'false'));
  if (!list.length) { box.removeAttribute('aria-activedescendant'); return; }
  list[at].setAttribute('aria-selected', 'true');
  box.setAttribute('aria-activedescendant', list[at].id);
  list[at].scrollIntoView({ block: 'nearest' });
}

function filter() {
  const words = box.value.trim().toLowerCase().split(/\s+/);
  for (const item of items) {
    const text = item.dataset.item.toLowerCase();
    item.hidden = !words.every((word) => text.includes(word));
  }
  for (const group of $$('[data-group]', dialog)) {
    group.hidden = !$$(`[data-of="${group.dataset.group}"]`, dialog).some((item) => !item.hidden);
  }
  $('[data-none]', dialog).hidden = shown().length > 0;
  choose(0);
}

function act(item) {
  if (item.dataset.href) location.href = item.dataset.href;
  else { dialog.close(); $(item.dataset.press)?.click(); }
}

/** Opens the palette, with what is in the search box of the top bar as its first word. */
export function openPalette(word = '') {
  if (!dialog || dialog.open) return;
  dialog.showModal();
  box.value = word;
  filter();
  box.focus();
}

if (dialog) {
  box.addEventListener('input', filter);
  box.addEventListener('keydown', (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) { event.preventDefault(); choose(at + move); }
    if (event.key === 'Enter') { event.preventDefault(); const item = shown()[at]; if (item) act(item); }
  });
  for (const item of items) item.addEventListener('click', () => act(item));
}
$('[data-palette]')?.addEventListener('click', () => openPalette());
$('[data-search]')?.addEventListener('keydown', (event) => {
  if (event.key === 'Enter') { event.preventDefault(); openPalette(event.target.value); event.target.value = ''; }
});
root.dataset.ready = 'true';
