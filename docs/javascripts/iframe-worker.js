// A page that is opened from a file may not start a Worker, which the search runs in. There, the Worker's script runs in a
// hidden frame instead. (The theme's plugin "offline" would load such a replacement from another server.)
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((resolve) => {
        const script = this.scope.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        this.scope.document.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
  }
  window.Worker = window.IFrameWorker = FrameWorker;
}
