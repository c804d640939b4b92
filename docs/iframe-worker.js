// Search in a site that is opened from disk. Browsers start no worker there, so the search runs in a hidden frame instead.
// mkdocs-material's offline plugin would fetch such a class from the network; it leaves that out when a file named
// "iframe-worker" is there. The search looks for "IFrameWorker" by name.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    addEventListener("message", (event) => {
      if (event.source === this.inside) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
    });
    this.inside.document.open();
    this.ready = new Promise((done) => this.inside.addEventListener("load", done));
    this.inside.document.write(
      `<body><script>postMessage = (data) => parent.postMessage(data, "*")</script><script src="${url}"></script>`,
    );
    this.inside.document.close();
  }

  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}

window.IFrameWorker = IFrameWorker;
if (location.protocol === "file:") window.Worker = IFrameWorker;
