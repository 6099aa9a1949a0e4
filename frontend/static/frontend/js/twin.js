// Chart | Table switches, tabs, and copy buttons. Listens on the document, so parts that htmx swaps need nothing.

import { $, $$, announce, onSwap, root, t } from './dom.js';
import { themechange } from './theme.js';

const chosen = new Map();

function show(group, view) {
  for (const button of $$('button', group)) button.setAttribute('aria-pressed', String(button.dataset.show === view));
  for (const part of $$('[data-twin-view]', group.closest('.panel'))) part.hidden = part.dataset.twinView !== view;
}

/** Opens one of the views of a page that has tabs; the address remembers it. */
export function tab(name) {
  const tabs = $$('[data-tab]');
  if (!tabs.some((one) => one.dataset.tab === name)) return;
  for (const one of tabs) {
    const on = one.dataset.tab === name;
    one.setAttribute('aria-selected', String(on));
    one.tabIndex = on ? 0 : -1;
    $(`#view-${one.dataset.tab}`).hidden = !on;
  }
  root.dispatchEvent(new CustomEvent('tabchange', { detail: name }));
  themechange();
}

/** Writes one key of the address without a new entry in the history. */
export function address(key, value) {
  const url = new URL(location.href);
  if (value == null || value === '') url.searchParams.delete(key); else url.searchParams.set(key, value);
  history.replaceState(null, '', url);
}

/** Copies text and says so. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce(t('copied'));
  } catch {
    announce(t('not_copied'));
  }
}

document.addEventListener('click', (event) => {
  const button = event.target.closest('button');
  if (!button) return;
  const group = button.closest('[data-twin]');
  if (group && button.dataset.show) {
    chosen.set(group.dataset.twin, button.dataset.show);
    show(group, button.dataset.show);
    if (button.dataset.show === 'chart') themechange();
  }
  if (button.dataset.tab) { tab(button.dataset.tab); address('view', button.dataset.tab); }
  if (button.dataset.copy !== undefined) copy(button.dataset.copy || location.href);
});

document.addEventListener('keydown', (event) => {
  if (!event.target.matches?.('[role="tab"]') || !['ArrowLeft', 'ArrowRight', 'Home', 'End'].includes(event.key)) return;
  const tabs = $$('[data-tab]');
  const at = tabs.indexOf(event.target);
  const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
  const to = tabs[(next + tabs.length) % tabs.length];
  event.preventDefault();
  to.click();
  to.focus();
});

// A swapped part comes back as a chart: show what the reader had chosen.
onSwap(() => {
  for (const [name, view] of chosen) {
    const group = $(`[data-twin="${name}"]`);
    if (group) show(group, view);
  }
});
