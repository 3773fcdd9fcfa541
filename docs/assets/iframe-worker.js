// SPDX-License-Identifier: Apache-2.0
// Browsers refuse web workers on pages that are opened from file://. There, the search of the site runs in a hidden frame.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.appendChild(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inner.document.createElement("script");
      const loaded = new Promise((resolve) => script.addEventListener("load", resolve));
      script.src = url;
      inner.document.body.appendChild(script);
      this.postMessage = (data) => loaded.then(() => inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
  window.Worker = window.IFrameWorker;
}
