// One queue: depth over time against its marks, rates, who fills it, who empties it.

import { change, get, path, Refused } from "./api.js";
import { Archive } from "./archive.js";
import { Chart } from "./chart.js";
import { confirm, notice } from "./dialog.js";
import { h, setText } from "./dom.js";
import { count, bytes, percent, rate } from "./format.js";
import * as history from "./history.js";
import { lately } from "./limit.js";
import { clientName, connectionHref, facts, fullness, laterText, limitCell, marksText, section, shareCell, tile, TONES } from "./part.js";
import { Peek } from "./peek.js";
import { AGES, olderPoints } from "./samples.js";
import { byteTicks } from "./scale.js";
import { Table } from "./table.js";
import { WatermarkForm } from "./watermark_form.js";
import { Why } from "./why.js";

const DEPTH = [{ key: "ready", name: "Ready", tone: "line-1" }, { key: "unacked", name: "Unacknowledged", tone: "line-3" }];
const BYTES = [{ key: "bytes", name: "Held", tone: "line-2" }];
const RATES = [
  { key: "arrived", name: "In", tone: "line-1" },
  { key: "delivered", name: "Out", tone: "line-3" },
  { key: "settled", name: "Acknowledged", tone: "line-4" },
];

export class QueueView {
  constructor(app, vhost, name) {
    this.app = app;
    this.place = [vhost, name];
    this.title = name;
    this.subtitle = `queue in vhost ${vhost}`;
    this.query = { view: "queue", vhost, name };
    this.key = `queue ${vhost} ${name}`;
    this.seen = "";
    this.build();
    this.load();
  }

  build() {
    this.gone = h("p", { class: "notice", role: "status" });
    this.tiles = { state: tile("State"), ready: tile("Ready"), unacked: tile("Unacknowledged"), held: tile("Held"), consumers: tile("Consumers"), deferred: tile("Confirms deferred") };
    this.charts = {
      depth: new Chart("Messages", DEPTH, { format: count }),
      bytes: new Chart("Bytes", BYTES, { format: bytes, ticks: byteTicks }),
      rates: new Chart("Messages per second", RATES, { format: rate }),
    };
    this.why = new Why();
    this.held = new Table("Publishers that it holds back", HELD_COLUMNS, { sort: ["share", true], empty: "It holds nobody back." });
    this.form = h("div", {});
    this.facts = h("div", {});
    this.consumers = new Table("Consumers", CONSUMER_COLUMNS, { sort: ["tag", false], empty: "It has no consumer." });
    this.bindings = new Table("Bindings", BINDING_COLUMNS, { sort: ["source", false], empty: "It has no binding." });
    this.archive = new Archive(...this.place);
    this.peek = new Peek(...this.place);
    const purge = h("button", { type: "button", class: "danger", onclick: () => this.ask() }, "Purge");
    this.element = h("div", { class: "stack" }, this.gone,
      h("dl", { class: "tiles" }, Object.values(this.tiles).map(({ element }) => element)),
      h("div", { class: "three" }, Object.values(this.charts).map(({ element }) => element)),
      h("div", { class: "pair" }, section("Who fills it", this.why.element), section("Held back", this.held.element)),
      h("div", { class: "pair" }, section("Watermarks", this.form), section("Members", this.facts)),
      h("div", { class: "pair" }, section("Consumers", this.consumers.element), section("Bindings", this.bindings.element)),
      this.archive.element,
      section("Messages", this.peek.element),
      section("Purge", h("p", {}, "Drops all messages that are ready; those at consumers stay."), h("div", { class: "buttons" }, purge)));
  }

  close() {
    for (const chart of Object.values(this.charts)) chart.close();
  }

  /** What does not change each second. */
  async load() {
    const [vhost, name] = this.place;
    try {
      const queue = await get(`${path("queues", vhost, name)}?${AGES}`);
      history.prepend(this.key, olderPoints(queue));
      this.form.replaceChildren(new WatermarkForm(this.app.session, queue, () => this.load()).element);
      this.facts.replaceChildren(facts(memberFacts(queue)));
      const bindings = await get(path("queues", vhost, name, "bindings"));
      this.bindings.update(bindings.map((row) => [`${row.source} ${row.properties_key}`, row]));
      await this.loadConsumers();
      await this.archive.load(queue);
    } catch (refusal) {
      if (!(refusal instanceof Refused)) throw refusal;
      setText(this.gone, refusal.message);
    }
  }

  async loadConsumers() {
    const [vhost, name] = this.place;
    const found = (await get(path("consumers", vhost))).filter((row) => row.queue.name === name);
    this.consumers.update(found.map((row) => [`${row.channel_details.id} ${row.consumer_tag}`, row]));
  }

  update(values) {
    const row = values.get("queue");
    setText(this.gone, row === undefined ? "The queue is not there any more." : "");
    if (row === undefined) return;
    this.showTiles(row);
    this.showCharts(row, values.at);
    this.archive.update();
    const why = values.get("why");
    if (why !== undefined) {
      this.why.update(why);
      this.held.update(why.held.map((client) => [client.id, client]));
    }
    const shape = `${row.consumers} ${row.leader} ${row.policy} ${JSON.stringify(row.watermarks)}`;
    if (this.seen !== "" && this.seen !== shape) this.load();
    this.seen = shape;
  }

  showTiles(row) {
    const full = fullness(row);
    this.tiles.state.update(row.saturated ? "saturated" : row.state, row.leader ? `led by ${row.leader}` : "no leader", TONES[row.state]);
    const later = (row.messages_held ?? 0) - row.messages_ready - row.messages_unacknowledged;
    this.tiles.ready.update(count(row.messages_ready), laterText(later));
    this.tiles.unacked.update(count(row.messages_unacknowledged));
    this.tiles.held.update(bytes(row.message_bytes), full === null ? "no watermark" : `${percent(full)} of its high watermark`, row.saturated ? "warn" : null);
    const idle = row.consumers === 0 && row.messages_ready > 0;
    this.tiles.consumers.update(count(row.consumers), row.consumers_busy > 0 ? `${count(row.consumers_busy)} hold all they may` : "", idle ? "warn" : null);
    this.tiles.deferred.update(count(row.confirms_deferred), marksText(row.watermarks), row.confirms_deferred > 0 ? "warn" : null);
  }

  showCharts(row, at) {
    const { arrived, delivered, settled } = row.flow;
    const points = history.add(this.key, {
      at,
      ready: row.messages_ready,
      unacked: row.messages_unacknowledged,
      bytes: row.message_bytes,
      arrived: arrived.last_1s,
      delivered: delivered.last_1s,
      settled: settled.last_1s,
    });
    const marks = row.watermarks ?? {};
    this.charts.depth.update(points, [{ value: marks.high, name: "high watermark", tone: "mark-high" }, { value: marks.low, name: "low", tone: "mark-low" }]);
    this.charts.bytes.update(points, [{ value: marks.high_bytes, name: "high watermark", tone: "mark-high" }, { value: marks.low_bytes, name: "low", tone: "mark-low" }]);
    this.charts.rates.update(points);
  }

  ask() {
    const [vhost, name] = this.place;
    confirm({
      title: `Purge queue “${name}”?`,
      text: `All messages that are ready in it (${this.tiles.ready.element.querySelector("dd").textContent} now) are dropped for good.`,
      action: "Purge",
      act: async () => {
        await change("DELETE", path("queues", vhost, name, "contents"));
        notice(`Queue “${name}” was purged.`);
      },
    });
  }
}

function memberFacts(queue) {
  const replicas = queue.replicas?.map((each) => (each.role === "voter" ? each.node : `${each.node} (${each.role})`));
  return [
    ["Leader", queue.leader || "none"],
    ["Members", (replicas?.length > 0 ? replicas : queue.members).join(", ")],
    ["Type", queue.type],
    ["Durable", queue.durable ? "yes" : "no"],
    ["Policy", queue.policy ?? "none"],
    ["Operator policy", queue.operator_policy ?? "none"],
    ["Arguments", Object.entries(queue.arguments).map(([name, value]) => `${name}: ${value}`).join(", ") || "none"],
    ...(queue.unknown_arguments?.length > 0 ? [["Arguments without effect", queue.unknown_arguments.join(", ")]] : []),
    ["In force by policy", Object.entries(queue.effective_policy_definition).map(([name, value]) => `${name}: ${value}`).join(", ") || "nothing"],
  ];
}

const HELD_COLUMNS = [
  { id: "name", title: "Connection", wide: true, value: clientName, cell: (row) => ({ text: clientName(row), href: connectionHref(row.id), title: `${row.name}, user ${row.user}` }) },
  { id: "limit", title: "Limit", value: (row) => lately(row.flow).limit, cell: (row) => limitCell(row) },
  { id: "share", title: "10 s", number: true, value: (row) => row.flow.stopped.last_10s, cell: (row) => shareCell(row.flow.stopped.last_10s) },
];

const CONSUMER_COLUMNS = [
  { id: "tag", title: "Consumer", wide: true, value: (row) => row.consumer_tag, cell: (row) => ({ text: row.consumer_tag, href: connectionHref(row.channel_details.id.slice(0, row.channel_details.id.lastIndexOf("/"))), title: row.channel_details.name }) },
  { id: "user", title: "User", level: 2, value: (row) => row.channel_details.user, cell: (row) => row.channel_details.user },
  { id: "node", title: "Node", brief: true, level: 2, value: (row) => row.channel_details.node, cell: (row) => row.channel_details.node },
  { id: "ack", title: "Acks", brief: true, value: (row) => Number(row.ack_required), cell: (row) => (row.ack_required ? "yes" : "no") },
  { id: "prefetch", title: "Prefetch", number: true, value: (row) => row.prefetch_count, cell: (row) => (row.prefetch_count > 0 ? count(row.prefetch_count) : "none") },
];

const BINDING_COLUMNS = [
  { id: "source", title: "From", wide: true, value: (row) => row.source, cell: (row) => row.source || "(default exchange)" },
  { id: "key", title: "Routing key", value: (row) => row.routing_key, cell: (row) => row.routing_key || "–" },
  { id: "arguments", title: "Arguments", level: 2, value: (row) => JSON.stringify(row.arguments), cell: (row) => (Object.keys(row.arguments).length > 0 ? JSON.stringify(row.arguments) : "–") },
];
