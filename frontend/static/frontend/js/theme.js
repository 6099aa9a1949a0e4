// Theme, menu on narrow screens, and small preferences. Runs on every page.

import { $, $$, root, t } from './dom.js';

const THEMES = ['system', 'light', 'dark'];
export const themechange = () => document.dispatchEvent(new Event('themechange'));

/** Stores one preference with the form that would do it without a script. */
export async function remember(form, name, value) {
  const body = new FormData(form);
  body.set(name, value);
  await fetch(form.action, { method: 'POST', body, headers: { 'X-Requested-With': 'fetch' } }).catch(() => {});
}

for (const button of $$('[data-theme-toggle]')) {
  button.addEventListener('click', (event) => {
    event.preventDefault();
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? 'system') + 1) % THEMES.length];
    if (next === 'system') delete root.dataset.theme; else root.dataset.theme = next;
    button.setAttribute('aria-label', t('theme', { name: t(`theme_${next}`) }));
    remember(button.form, 'theme', next);
    themechange();
  });
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', themechange);

$('[data-rail-toggle]')?.addEventListener('click', (event) => {
  const open = root.dataset.rail !== 'open';
  if (open) root.dataset.rail = 'open'; else delete root.dataset.rail;
  event.currentTarget.setAttribute('aria-expanded', String(open));
});

/** True where colours are drawn for a dark page. */
export function isDark() {
  const scheme = getComputedStyle(root).colorScheme;
  return scheme === 'dark' || (scheme !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches);
}

/** What the tokens resolve to now: `{name: 'rgb(…)'}`. light-dark() only resolves on an element. */
export function tokens(names) {
  const probe = document.createElement('i');
  document.body.append(probe);
  const out = {};
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    out[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return out;
}
