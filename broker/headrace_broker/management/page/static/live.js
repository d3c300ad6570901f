// What the node sends while a view is open: values by key, kept up to date.

const HIDDEN_MS = 10_000; // after which a tab that nobody sees is sent nothing more
const AGAIN_MS = 2_000;

/** Values by key, and when they were true (Unix time in milliseconds). */
export class Values {
  constructor() {
    this.map = new Map();
    this.at = 0;
  }

  take(change) {
    if (change.whole) this.map.clear();
    for (const key of change.gone) this.map.delete(key);
    for (const [key, value] of Object.entries(change.put)) this.map.set(key, value);
    this.at = change.at;
  }

  get(key) {
    return this.map.get(key);
  }

  /** Keys and values whose keys are not among some that mean something else. */
  rows(...others) {
    return [...this.map].filter(([key]) => !others.includes(key));
  }
}

export class Live {
  /**
   * @param on {cluster, view, state, over}: called with values that have changed, with whether
   *   the node can be heard, and when the log-in is over.
   */
  constructor(on) {
    this.on = on;
    this.cluster = new Values();
    this.values = new Values();
    this.query = null;
    this.source = null;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.seen());
  }

  /** Look at a view from now on: {view, vhost, name}. */
  watch(query) {
    this.query = new URLSearchParams(query).toString();
    this.values = new Values();
    this.open();
  }

  stop() {
    this.query = null;
    this.close();
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  seen() {
    clearTimeout(this.timer);
    if (document.hidden) this.timer = setTimeout(() => this.close(), HIDDEN_MS);
    else if (this.source === null) this.open();
  }

  open() {
    this.close();
    if (this.query === null || document.hidden) return;
    const source = new EventSource(`/page/events?${this.query}`);
    this.source = source;
    source.addEventListener("open", () => this.on.state(true));
    source.addEventListener("cluster", (event) => {
      this.cluster.take(JSON.parse(event.data));
      this.on.cluster(this.cluster);
    });
    source.addEventListener("view", (event) => {
      this.values.take(JSON.parse(event.data));
      this.on.view(this.values);
    });
    source.addEventListener("over", () => this.again());
    source.addEventListener("error", () => {
      this.on.state(false);
      if (source.readyState === EventSource.CLOSED) this.again(); // otherwise it comes back by itself
    });
  }

  /** The node sends no more: find out whether the log-in is over, and ask again. */
  again() {
    this.close();
    this.timer = setTimeout(() => this.open(), AGAIN_MS);
    this.on.over();
  }
}
