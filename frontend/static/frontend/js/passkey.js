// Passkeys: asks the browser for one, puts its answer into the form, and sends the form.

import { $$ } from './dom.js';

async function answer(form) {
  const json = window.webauthnJSON;
  if (form.dataset.passkey === 'create') return json.create(JSON.parse(form.dataset.options));
  if (form.dataset.passkey === 'get') return json.get(JSON.parse(form.dataset.options));
  const reply = await fetch(form.action, { headers: { Accept: 'application/json' } });
  if (!reply.ok) throw new Error(String(reply.status));
  return json.get((await reply.json()).request_options);
}

function refuse(form) {
  const place = form.querySelector('[data-passkey-error]');
  place.textContent = form.dataset.failed;
  place.hidden = false;
}

for (const form of window.PublicKeyCredential && window.webauthnJSON ? $$('form[data-passkey]') : []) {
  form.hidden = false;
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    try {
      form.elements.credential.value = JSON.stringify(await answer(form));
      form.submit();
    } catch {
      refuse(form);
    }
  });
}
