// What a row of the map is called.

import { t } from './dom.js';
import { number } from './format.js';

/** The whole name. */
export const label = (row) => (row.kind === 'other' ? t('other', { n: number(row.merged) }) : row.kind === 'new' ? t('new_prompts') : row.label || row.family);

/** The label cut in the middle until it `fits`: the namespace, and the end of the family's id. */
export const brief = (row, fits) => {
  const words = label(row);
  if (fits(words)) return words;
  const tail = row.kind === 'family' && row.family ? row.family.slice(-4) : words.slice(-5);
  let n = words.length - tail.length - 1;
  while (n > 1 && !fits(`${words.slice(0, n)}…${tail}`)) n -= 1;
  return `${words.slice(0, n)}…${tail}`;
};

/** Tenant and model. */
export const path = (row) => [row.tenant, row.model].filter(Boolean).join(' ▸ ');

/** What the form behind `path` is asked to begin with: the row itself, or where it stands for many, its tenant. */
export const planned = (path, { kind, id, tenant }) => `${path}?${new URLSearchParams(kind !== 'other' ? { row: id } : tenant ? { tenant } : {})}`;
