// Who is charged for what, and why somebody is slow.

import { h, setText } from "./dom.js";
import { count, percent, rate } from "./format.js";
import { Graph } from "./graph.js";
import { bindsAtSource } from "./graph_model.js";
import { connectionHref, queueHref, section } from "./part.js";
import { Table } from "./table.js";
import { accountName, Why } from "./why.js";

export class FlowView {
  constructor(app, chosen = "") {
    this.app = app;
    this.title = "Flow";
    this.subtitle = "who is charged for what";
    this.query = { view: "graph", name: chosen };
    this.graph = new Graph((node) => this.choose(node));
    this.graph.selected = chosen === "" ? null : `source ${chosen}`;
    this.missing = h("p", { class: "notice", role: "status" });
    this.why = new Why();
    this.head = h("h2", {}, "");
    this.link = h("a", {}, "Open");
    const close = h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => this.graph.choose(null) }, "✕");
    this.panel = h("section", { class: "section panel", "aria-live": "off", hidden: true }, h("div", { class: "panel-head" }, this.head, this.link, close), this.why.element);
    this.table = new Table("Who is charged for what", COLUMNS, { sort: ["load", true], empty: "Nobody is charged for anything." });
    const legend = h("ul", { class: "graph-legend" },
      h("li", {}, h("span", { class: "key-link" }), "the wider, the more bytes are owed or were brought in the last 10 s"),
      h("li", {}, h("span", { class: "key-gate" }), "a gate is closed: this limit binds (pale: it did within the last 10 s)"),
      h("li", {}, h("span", { class: "key-fill" }), "how full a queue is against its high watermark; the tick is the low one"));
    this.element = h("div", { class: "stack" },
      h("p", { class: "hint" }, "Choose a connection to read why it is slow, or a queue to read whom it holds back."),
      this.missing,
      h("div", { class: "graph-and-panel" }, h("div", { class: "graph-place" }, this.graph.element, legend), this.panel),
      section("As a table", this.table.element));
    if (chosen !== "") this.name({ layer: 0, account: chosen, kind: "connection", name: chosen });
  }

  close() {
    this.graph.close();
  }

  update(values) {
    const told = values.get("graph");
    if (told !== undefined) {
      this.graph.update(told);
      this.table.update(rows(told));
      setText(this.missing, told.missing.length > 0 ? `No answer from ${told.missing.join(", ")}: what goes through there lacks here.` : "");
    }
    const why = values.get("why");
    const problem = values.get("problem");
    this.panel.hidden = this.graph.selected === null;
    this.why.element.hidden = why === undefined && problem === undefined;
    if (why !== undefined) this.why.update(why);
    else if (problem !== undefined) this.why.problem(problem);
  }

  choose(node) {
    const query = { view: "graph" };
    if (node?.layer === 0) query.name = node.account || node.id;
    if (node?.layer === 2) Object.assign(query, { vhost: node.vhost, name: node.name });
    const place = node?.layer === 0 && node.account ? `#/flow/${encodeURIComponent(node.account)}` : "#/flow";
    history.replaceState(null, "", place);
    this.panel.hidden = node === null;
    if (node !== null) this.name(node);
    this.app.watch(query);
  }

  name(node) {
    setText(this.head, node.layer === 0 ? accountName(node) : `Queue ${node.name}`);
    this.link.href = node.layer === 0 ? connectionHref(node.account) : queueHref(node);
    this.link.hidden = node.layer === 0 && (node.kind !== "connection" || !node.account);
    this.why.element.hidden = true;
  }
}

/** Edges as rows, each with its part of its queue's load. */
function rows(told) {
  const totals = new Map();
  const place = (edge) => `${edge.vhost}/${edge.queue}`;
  for (const edge of told.edges) totals.set(place(edge), (totals.get(place(edge)) ?? 0) + edge.load);
  return told.edges.map((edge, at) => [
    edge.account ? `${edge.account} ${place(edge)}` : `${at} ${place(edge)}`,
    { ...edge, limit: edge.limit || limitAtSource(told.connections[edge.account]), share: totals.get(place(edge)) > 0 ? edge.load / totals.get(place(edge)) : 0 },
  ]);
}

/** The limit that stops a connection wherever it publishes to, "" for none. */
function limitAtSource(connection) {
  const limit = connection?.flow.limit ?? "";
  return bindsAtSource(limit) ? limit : "";
}

const through = (edge) => edge.exchanges.map(([name]) => name || "(default)").join(", ");

const COLUMNS = [
  { id: "who", title: "Who", wide: true, value: accountName, cell: (edge) => (edge.kind === "connection" && edge.account ? { text: accountName(edge), href: connectionHref(edge.account), title: `user ${edge.user}, node ${edge.node}` } : accountName(edge)) },
  { id: "through", title: "Through", level: 3, value: through, cell: (edge) => through(edge) || "–" },
  { id: "queue", title: "Queue", value: (edge) => edge.queue, cell: (edge) => edge.queue },
  { id: "load", title: "Share", help: "of what open connections owe there and brought in the last 10 s; see Why for who has filled the queue", number: true, value: (edge) => edge.load, cell: (edge) => ({ text: percent(edge.share), bar: edge.share }) },
  { id: "rate", title: "Brings", number: true, level: 2, value: (edge) => edge.message_rate, cell: (edge) => rate(edge.message_rate) },
  { id: "owes", title: "Owes", help: "messages that are not done", number: true, level: 3, value: (edge) => edge.messages, cell: (edge) => count(edge.messages) },
  { id: "limit", title: "Limit", level: 2, value: (edge) => edge.limit, cell: (edge) => (edge.limit ? { text: edge.limit, tone: "warn" } : "–") },
];
