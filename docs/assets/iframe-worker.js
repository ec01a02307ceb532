// The site's search works in a Worker. Browsers start none for a page that was opened from a folder, so search
// then works in a hidden frame. Material's search asks for the name IFrameWorker.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      const page = this.scope.document;
      page.write("<!doctype html><body>");
      page.close();
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = page.createElement("script");
      script.src = url;
      this.loaded = new Promise((resolve) => { script.onload = resolve; });
      page.body.append(script);
    }

    async postMessage(data) {
      await this.loaded;
      this.scope.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
