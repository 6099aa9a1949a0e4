// Small words for the document, and the phrases of the active language. No other module touches them twice.

export const root = document.documentElement;
export const $ = (selector, from = document) => from.querySelector(selector);
export const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

const SVG = 'http://www.w3.org/2000/svg';

/** An SVG element with attributes and, if given, text. */
export function svg(name, attributes = {}, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** An HTML element with attributes and children (strings become text). */
export function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Writes text only where it differs, so that a frame without news costs no layout. */
export function write(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

/** Sets an attribute only where it differs; null removes it. */
export function mark(element, name, value) {
  if (!element) return;
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

const words = JSON.parse(document.body.dataset.words ?? '{}');

/** The phrase of a key, with {names} filled in. */
export function t(key, values = {}) {
  return (words[key] ?? key).replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
}

/** Says something once to screen readers. */
export function announce(text) {
  write($('[data-announce]'), text);
}

/** Runs once after htmx has brought parts of the page. */
export function onSwap(action) {
  let due = false;
  const soon = () => { if (!due) { due = true; queueMicrotask(() => { due = false; action(); }); } };
  for (const name of ['htmx:oobAfterSwap', 'htmx:afterSwap']) document.addEventListener(name, soon);
}
