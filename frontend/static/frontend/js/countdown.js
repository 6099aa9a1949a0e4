// How long a plan can still be started, second by second; the server says it anew every ten. At zero nothing is hidden.

import { $, t, write } from './dom.js';

let until = 0, seen = null;

setInterval(() => {
  const part = $('[data-left]');
  if (!part) return;
  if (part !== seen) { seen = part; until = Date.now() + 1000 * Number(part.dataset.left); }
  const left = Math.max(0, Math.round((until - Date.now()) / 1000));
  write(part, t('left', { minutes: Math.floor(left / 60), seconds: String(left % 60).padStart(2, '0') }));
}, 1_000);
