// The button that prints, or makes a PDF, of the sheet on the page.

import { $ } from './dom.js';

$('[data-print]')?.addEventListener('click', () => print());
