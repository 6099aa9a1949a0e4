// A page that asks by itself (`data-polled`) says when nobody answers any more: what it shows is the last known then.
// That something new came is said once; the page does not move for it.

import { $, announce, onSwap, root, t, write } from './dom.js';
import { now } from './clock.js';
import { clock } from './format.js';

const QUIET_MS = 15_000, AWAKE_MS = 8_000;
let heard = Date.now(), patience = 0, told = false;

function look() {
  const age = Date.now() - heard, asking = $('[data-polled]') && !document.hidden;
  const silent = Boolean(asking) && age > QUIET_MS && Date.now() > patience;
  if (silent) write($('[data-polled-said]'), t('live_said_mute', { time: clock(now() - age / 1000) }));
  if (silent === 'old' in root.dataset) return;
  $('[data-polled-banner]').hidden = !silent;
  root.toggleAttribute('data-old', silent);
  if (!silent) announce(t('live_back'));
}

document.addEventListener('htmx:afterRequest', (event) => { if (event.detail.successful) heard = Date.now(); });
document.addEventListener('visibilitychange', () => { if (!document.hidden) patience = Date.now() + AWAKE_MS; });  // browsers hold timers back
onSwap(() => {
  const part = $('[data-fresh]'), fresh = Number(part?.dataset.fresh ?? 0) > 0;
  if (fresh && !told) announce(part.textContent.trim());
  told = fresh;
});
setInterval(look, 1_000);
