// A file that is larger than is checked is named before it is sent: the server would not take it in.

import { $, $$ } from './dom.js';

const form = $('form[data-most]');
const ROUND = 8192; // of a form around its files
const chosen = (input) => input.files[0]?.size ?? 0;

/** Whether all that is brought fits; the field that does not says so. */
function fits() {
  const inputs = $$('input[type=file]', form);
  const whole = inputs.reduce((sum, input) => sum + chosen(input), 0);
  for (const input of inputs) input.setCustomValidity('');
  if (whole + ROUND <= Number(form.dataset.most)) return true;
  const largest = inputs.reduce((most, input) => (chosen(input) > chosen(most) ? input : most));
  largest.setCustomValidity(form.dataset.tooLarge);
  return largest.reportValidity();
}

form?.addEventListener('change', fits);
form?.addEventListener('submit', (event) => { if (!fits()) event.preventDefault(); });
