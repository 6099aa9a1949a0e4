// One operation as it happens. The socket says that something is new; everything worded is drawn by the server.

import { $, onSwap, root } from './dom.js';
import { heard, now, refresh, start, subscribe } from './live.js';

const host = $('[data-operation]');

const view = {
  render() { view.apply(); },
  apply() {
    heard(now());
    root.dataset.operationFrames = String(1 + Number(root.dataset.operationFrames ?? 0));
    refresh();
  },
  async poll() { refresh(); },
};

onSwap(() => heard(Number($('[data-as-of]')?.dataset.asOf ?? 0)));

if (host) {
  subscribe(`operation:${host.dataset.operation}`, view);
  start();
}
