// The secret of an invitation is behind the # of its link: posted, it is in no address, no history and no log.

const form = document.querySelector('[data-invitation]');
const token = location.hash.slice(1);
if (form && token) {
  history.replaceState(null, '', location.pathname);
  form.elements.token.value = token;
  form.submit();
}
