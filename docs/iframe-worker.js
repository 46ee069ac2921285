// Search needs a worker, and a page opened from a folder may not start one: there the worker's script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      const page = frame.contentDocument;
      page.open();
      page.write("<body></body>");
      page.close();
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
      const script = page.createElement("script");
      script.src = url;
      this.started = new Promise((resolve) => script.addEventListener("load", resolve));
      page.body.append(script);
    }

    async postMessage(data) {
      await this.started;
      this.scope.dispatchEvent(new this.scope.MessageEvent("message", { data: this.scope.structuredClone(data) }));
    }
  };
}
