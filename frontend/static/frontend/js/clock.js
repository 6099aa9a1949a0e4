// Server time in the browser, and the clock of the rail: a time that stands still would pass for the present one.

import { $, write } from './dom.js';
import { clock } from './format.js';

const skew = Date.now() - Number(document.body.dataset.now || Date.now() / 1000) * 1000;

/** Server time in seconds, as far as this page knows it. */
export const now = () => (Date.now() - skew) / 1000;

const shown = $('[data-clock]');
if (shown) setInterval(() => write(shown, clock(now())), 1_000);
